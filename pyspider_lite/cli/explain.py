"""`explain`: why a page was or was not crawled, what happens to it next, and when."""

import difflib
from typing import Any

import click

from pyspider_lite import bootstrap
from pyspider_lite.cli import options
from pyspider_lite.cli.terminal import say
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import ConfigError, PyspiderLiteError
from pyspider_lite.handler.url import BadUrl, build_url, md5string
from pyspider_lite.models.task import Task
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
        tasks = find(taskdb, project, page)
        leader, now, state = taskdb.leader(), taskdb.time(), taskdb.project_states().get(project)
    leads = leader is not None and leader.until >= now
    lives, not_asked = _ask(settings, project, [task.taskid for task in tasks] or _ids(page))
    if not tasks:
        say(_stranger(page, project))
        lives = [max(lives, key=lambda live: bool(live and live.get("drop")))]
    explained: list[Task | None] = [*tasks] or [None]
    for task, live in zip(explained, lives, strict=True):
        around = explanation.Around(now=now, project=stored, leads=leads, live=live, state=state)
        if task is not None and len(tasks) > 1:
            say(f"{task.taskid}:")
        _show(task, around)
    if not_asked:
        say(f"Dropped submissions are known to the scheduler only, and it cannot be asked: {not_asked}.")


def _show(task: Task | None, around: explanation.Around) -> None:
    live = around.live or {}
    if task is not None:
        say(explanation.of_task(task, around))
        if links := explanation.links_dropped(task):
            say(links)
    if live.get("drop"):
        say(explanation.of_drop(live["drop"]))
    elif task is None and live.get("dropped"):
        counts = ", ".join(f"{reason} {count:.0f}" for reason, count in sorted(live["dropped"].items()))
        say(f"None of the last drops of the project is of it; in all it had: {counts}.")


def _stranger(page: str, project: str) -> str:
    try:
        build_url(page)
    except BadUrl as error:
        return f"{page} is never crawled: self.crawl drops it (bad-url): {error}"
    return explanation.of_stranger(page, project)


def _ids(page: str) -> list[str]:
    """The ids that may be meant: the text itself, and the one that a GET of it has. Any text may be either: `mailto:a@b` is a URL to
    self.crawl, and `taskid=` may look like one."""
    try:
        return [page, md5string(build_url(page))]
    except BadUrl:
        return [page]


def find(taskdb: TaskDB, project: str, page: str) -> list[Task]:
    """The task with this id, or the newest ones with this URL, whatever their ids."""
    found = taskdb.get(project, set(_ids(page)))
    if found:
        return found
    after: int | None = None
    for _ in range(LOOKED_THROUGH // 1000):
        rows = taskdb.select(project, limit=1000, after=after)
        found += [task for task in rows if task.url == page]
        if not rows or len(found) >= SHOWN:
            break
        after = rows[-1].seq
    return found[:SHOWN]


def _ask(settings: Settings, project: str, taskids: list[str]) -> tuple[list[dict[str, Any] | None], str]:
    """What the scheduler says of each task, or why it does not; it is not asked again then."""
    lives: list[dict[str, Any] | None] = []
    try:
        url = bootstrap.scheduler_rpc(settings)
        for taskid in taskids:
            lives.append(bootstrap.call_scheduler(settings, url, "explain", project, taskid, timeout=_PATIENCE))
    except PyspiderLiteError as error:
        return [*lives, *[None] * (len(taskids) - len(lives))], str(error)
    return lives, ""
