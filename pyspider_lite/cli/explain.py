"""`explain`: why a page was or was not crawled, what happens to it next, and when."""

import difflib
from typing import Any

import click

from pyspider_lite import bootstrap
from pyspider_lite.cli import options
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import ConfigError, PyspiderLiteError
from pyspider_lite.handler.url import BadUrl, build_url, md5string
from pyspider_lite.models import Task
from pyspider_lite.rpc import client
from pyspider_lite.scheduler import explanation
from pyspider_lite.settings import Settings

#: newest tasks that are looked through for a URL that is not known by its MD5: those with a body or a chosen id
LOOKED_THROUGH = 10_000
#: tasks of one URL that are explained
SHOWN = 10
#: seconds for each step of asking the scheduler
_PATIENCE = 5.0


@click.command("explain")
@click.argument("project")
@click.argument("page", metavar="URL|TASKID")
@click.pass_context
def explain_command(ctx: click.Context, project: str, page: str) -> None:
    """Say why a page of PROJECT, given by its URL or task id, was or was not crawled, what happens to it next, and when.

    The databases are enough. If the scheduler's XML-RPC can be reached, it also tells why a submission was dropped, and whether the task
    runs now.
    """
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_projectdb(settings) as projectdb:
        stored = projectdb.get(project)
        names = [head.name for head in projectdb.heads()] if stored is None else []
    with bootstrap.open_taskdb(settings) as taskdb:
        if stored is None and project not in taskdb.projects():
            near = difflib.get_close_matches(project, names, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"there is no project {project}, so submissions to it are dropped{hint}")
        taskid = _taskid(page)
        tasks = find(taskdb, project, page)
        leader, now, state = taskdb.leader(), taskdb.time(), taskdb.project_states().get(project)
    leads = leader is not None and leader.until >= now
    if not tasks:
        click.echo(_stranger(page, project))
    not_asked = ""
    for one in [task.taskid for task in tasks] or [taskid]:
        live, not_asked = _ask(settings, project, one) if not not_asked else (None, not_asked)
        around = explanation.Around(now=now, project=stored, leads=leads, live=live, state=state)
        if len(tasks) > 1:
            click.echo(f"{one}:")
        _show(next((task for task in tasks if task.taskid == one), None), around)
    if not_asked:
        click.echo(f"Dropped submissions are known to the scheduler only, and it cannot be asked: {not_asked}.")


def _show(task: Task | None, around: explanation.Around) -> None:
    live = around.live or {}
    if task is not None:
        click.echo(explanation.of_task(task, around))
        if links := explanation.links_dropped(task):
            click.echo(links)
    if live.get("drop"):
        click.echo(explanation.of_drop(live["drop"]))
    elif task is None and live.get("dropped"):
        counts = ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(live["dropped"].items()))
        click.echo(f"None of the last drops of the project is of it; in all it had: {counts}.")


def _stranger(page: str, project: str) -> str:
    try:
        if _is_url(page):
            build_url(page)
    except BadUrl as error:
        return f"{page} is never crawled: self.crawl drops it (bad-url): {error}"
    return explanation.of_stranger(page, project)


def _is_url(page: str) -> bool:
    return "://" in page or page.startswith("data:")


def _taskid(page: str) -> str:
    """The id that a GET of this URL has; what is no URL is an id."""
    try:
        return md5string(build_url(page)) if _is_url(page) else page
    except BadUrl:
        return md5string(page)


def find(taskdb: TaskDB, project: str, page: str) -> list[Task]:
    """The task with this id, or the newest ones with this URL, whatever their ids."""
    found = taskdb.get(project, {page, _taskid(page)})
    if found or not _is_url(page):
        return found
    after: int | None = None
    for _ in range(LOOKED_THROUGH // 1000):
        rows = taskdb.select(project, limit=1000, after=after)
        found += [task for task in rows if task.url == page]
        if not rows or len(found) >= SHOWN:
            break
        after = rows[-1].seq
    return found[:SHOWN]


def _ask(settings: Settings, project: str, taskid: str) -> tuple[dict[str, Any] | None, str]:
    """What the scheduler says, or why it does not."""
    try:
        url = bootstrap.scheduler_rpc(settings)
        return client.call(url, settings.rpc_secret, "explain", project, taskid, timeout=_PATIENCE), ""
    except PyspiderLiteError as error:
        return None, str(error)
