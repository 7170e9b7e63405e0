"""`task`: look at the tasks of a project, and have them run again, cancelled or given another priority."""

import json
import time

import click
import msgspec

from pyspider_lite import bootstrap, error_kinds
from pyspider_lite.cli import options
from pyspider_lite.cli.explain import find
from pyspider_lite.cli.task_choice import ALL, PAGE, Wanted, check_kinds, check_project
from pyspider_lite.cli.task_orders import cancel, retry, set_tasks
from pyspider_lite.cli.terminal import say
from pyspider_lite.errors import ConfigError
from pyspider_lite.models.task import Task, TaskStatus
from pyspider_lite.scheduler import rules

_STATUS = click.Choice([status.name for status in TaskStatus], case_sensitive=False)
#: the year 3000; a due time beyond it is "never"
_LAST_SHOWN = 32_503_680_000


@click.group("task")
def task_command() -> None:
    """Tasks: the pages of a project and what became of them."""


@task_command.command("list")
@click.argument("project")
@click.option("--status", type=_STATUS, help="Only tasks in this state.")
@click.option("--error", "errors", multiple=True, metavar="KIND", help="Only tasks whose last run failed with this.")
@click.option("--callback", metavar="NAME", help="Only tasks whose pages go to this method.")
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.pass_context
def list_tasks(
    ctx: click.Context, project: str, status: str | None, errors: tuple[str, ...], callback: str | None, limit: int
) -> None:
    """List tasks of PROJECT, the newest first: state, time of the last change, id, URL."""
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_taskdb(settings) as taskdb:
        check_project(taskdb, project)
        wanted = Wanted(states=ALL, errors=check_kinds(errors), callback=callback)
        after = None
        while limit > 0:
            rows = taskdb.select(
                project,
                status=TaskStatus[status] if status else None,
                limit=PAGE if errors or callback else min(limit, PAGE),
                after=after,
            )
            shown = [row for row in rows if wanted.fits(row)][:limit]
            for row in shown:
                changed = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(row.updatetime))
                say(f"{TaskStatus(row.status).name:<8} {changed}  {row.taskid}  {row.url}")
            limit -= len(shown)
            if not rows:
                return
            after = rows[-1].seq


@task_command.command()
@click.argument("project")
@click.argument("task", metavar="URL|TASKID")
@click.pass_context
def show(ctx: click.Context, project: str, task: str) -> None:
    """Print all that is stored of a task, given by its URL or id, as JSON; of one that failed also the kinds of its error (as for
    --error) and how many of its retries are used, and of one that waits when it is tried next. Several tasks of one URL are printed one
    after the other."""
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_taskdb(settings) as taskdb:
        rows = find(taskdb, project, task)
    if not rows:
        raise ConfigError(f"there is no task {task} in a project {project}")
    for row in rows:
        say(json.dumps({**msgspec.to_builtins(row), **_attempts(row)}, ensure_ascii=False, indent=2), lines=True)


def _attempts(task: Task) -> dict[str, str]:
    """How often it was tried, and when it is tried next."""
    shown = {}
    if kinds := error_kinds.of_track(task.track):
        shown["error"] = ", ".join(sorted(kinds))
    schedule = rules.read_stored(task.schedule)
    if schedule.retried or task.status == TaskStatus.FAILED:
        fetch = task.track.get("fetch") or {}
        retries = schedule.retries_after(fetch.get("status_code"), fetch.get("error_kind"))
        shown["retry"] = f"{schedule.retried} of {retries}"
    if task.status == TaskStatus.ACTIVE and task.due is not None and task.due < _LAST_SHOWN:
        shown["next attempt at"] = time.strftime("%Y-%m-%d %H:%M:%S %z", time.localtime(task.due))
    return shown


for _command in (retry, cancel, set_tasks):
    task_command.add_command(_command)
