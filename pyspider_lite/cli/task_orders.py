"""`task retry`, `task cancel`, `task set`: bulk orders for stored tasks. The command reads the taskdb page by page and picks what matches;
the scheduler, which alone changes tasks, is given the picks by XML-RPC, a few hundred at a time."""

import json
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import wraps
from typing import Any, NamedTuple

import click
from msgspec.structs import replace

from pyspider_lite import bootstrap
from pyspider_lite.cli import options
from pyspider_lite.cli.task_choice import ACTIVE, FAILING, RAN, Wanted, check_kinds, pages
from pyspider_lite.cli.terminal import say
from pyspider_lite.errors import PyspiderLiteError, RefusedToStart
from pyspider_lite.models.project import ACTIVE_PROJECT
from pyspider_lite.models.task import Task
from pyspider_lite.settings import Settings

#: seconds between two orders at most; it is as long as the last one took, so that the crawl has at least half of the scheduler
_LONGEST_PAUSE = 1.0
#: seconds for one answer, and for the scheduler to be back when it is away
_ANSWER, PATIENCE = 15.0, 60.0
_SAY_EACH = 5.0
MAX_PRIORITY = 2**31 - 1


# --- the scheduler ------------------------------------------------------------------------------------------------------


class Orders:
    """To the scheduler that leads. An order that was not answered is given again: it names runs, so that twice is once."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._url = ""
        self._answered = False

    def give(self, project: str, action: str, tasks: list[Task], priority: int = 0) -> dict[str, int]:
        """How many came to what. Raises PyspiderLiteError if nobody leads within a minute, or at once if nobody ever answered."""
        deadline = time.monotonic() + PATIENCE
        body = json.dumps({task.taskid: task.run for task in tasks})
        while True:
            try:
                self._url = self._url or bootstrap.scheduler_rpc(self._settings)
                answer: dict[str, int] = bootstrap.call_scheduler(
                    self._settings,
                    self._url,
                    "order_tasks",
                    project,
                    action,
                    body,
                    priority,
                    timeout=_ANSWER,
                )
            except PyspiderLiteError:
                self._url = ""
                if not self._answered or time.monotonic() >= deadline:
                    raise
                time.sleep(1.0)
            else:
                self._answered = True
                return answer


def carry_out(
    settings: Settings, chosen: Iterator[list[Task]], project: str, action: str, *, priority: int = 0, dry_run: bool
) -> None:
    """Order it for all these tasks, or only count them; says what became of it."""
    orders, outcomes = Orders(settings), Counter[str]()
    matched, said = 0, time.monotonic()
    try:
        for tasks in chosen:
            matched += len(tasks)
            if not dry_run:
                begun = time.monotonic()
                outcomes.update(orders.give(project, action, tasks, priority))
                time.sleep(min(_LONGEST_PAUSE, time.monotonic() - begun))
            if time.monotonic() - said >= _SAY_EACH:
                said = time.monotonic()
                say(f"{matched} tasks so far ...", err=True)
    except PyspiderLiteError as error:
        if outcomes:
            raise RefusedToStart(f"{_sum(action, outcomes)}; then: {error}. Run it again for the rest") from error
        raise
    if dry_run or not matched:
        say(f"{matched} task{'' if matched == 1 else 's'} would be {_WOULD[action]}" if matched else "no task fits")
    else:
        say(_sum(action, outcomes))


_WOULD = {"retry": "run again", "cancel": "cancelled", "priority": "given this priority"}


def _sum(action: str, outcomes: Counter[str]) -> str:
    words = {
        "done": _WOULD[action],
        "at its exetime": "waiting again for the exetime of their submission",
        "after its run": "cancelled when the run that is under way has ended",
    }
    done = [word for word in words if outcomes[word] or word == "done"]
    parts = [f"{outcomes[word]} {words[word]}" for word in done]
    parts += [f"{count} left alone: {word}" for word, count in sorted(outcomes.items()) if word not in words and count]
    return ", ".join(parts)


# --- commands -----------------------------------------------------------------------------------------------------------


class Choice(NamedTuple):
    """Which tasks, as all these commands are told it."""

    project: str
    #: by URL or id
    named: tuple[str, ...]
    errors: tuple[str, ...]
    callback: str | None
    dry_run: bool


def _choosing(function: Callable[..., None]) -> Callable[..., None]:
    """Options that choose tasks; the command gets them as one Choice."""

    @wraps(function)
    def command(
        project: str, tasks: tuple[str, ...], errors: tuple[str, ...], callback: str | None, dry_run: bool, **rest: Any
    ) -> None:
        function(Choice(project, tasks, check_kinds(errors), callback, dry_run), **rest)

    for decorate in reversed(
        (
            click.argument("project"),
            click.argument("tasks", nargs=-1, metavar="[URL|TASKID]..."),
            click.option("--error", "errors", multiple=True, metavar="KIND", help="Those whose last run failed with this: "
                "timeout, dns, 404, 5xx, script, ValueError ... (docs/tasks.md). May be given several times."),
            click.option("--callback", metavar="NAME", help="Those whose pages go to this method."),
            click.option("--dry-run", is_flag=True, help="Only count them."),
        )
    ):  # fmt: skip
        command = decorate(command)
    return command


@click.command()
@_choosing
@click.option("--failed", is_flag=True, help="Those that failed for good.")
@click.option("--waiting", is_flag=True, help="Those that failed and wait for a retry.")
@click.option("--cancelled", is_flag=True, help="Those that were cancelled.")
@click.option("--all", "everything", is_flag=True, help="All that have run, failed or not.")
@click.pass_context
def retry(ctx: click.Context, /, choice: Choice, everything: bool, **flags: bool) -> None:
    """Run tasks of PROJECT again, now and with all their retries: those given by URL or id, or all that the options choose.

    With --error alone they are those that failed for good or wait for a retry, with --callback alone all that have run. What is under
    way or waits its turn anyway is left alone. The server is not asked whether a page changed. The crawl goes on meanwhile; a scheduler
    has to be running.
    """
    states = {state for state, given in flags.items() if given}
    if everything or (not states and choice.callback is not None and not choice.errors):
        states |= RAN
    elif not states and choice.errors:
        states |= FAILING
    _run(ctx, choice, "retry", frozenset(states))


@click.command()
@_choosing
@click.option("--all", "everything", is_flag=True, help="All that wait or run.")
@click.pass_context
def cancel(ctx: click.Context, choice: Choice, everything: bool) -> None:
    """Cancel tasks of PROJECT that wait or run: those given by URL or id, or all that the options choose.

    They get the status BAD; one that is under way ends first. `task retry PROJECT --cancelled` takes it back.
    """
    _run(ctx, choice, "cancel", _active(choice, everything))


@click.command("set")
@_choosing
@click.option("--all", "everything", is_flag=True, help="All that wait or run.")
@click.option(
    "--priority", type=click.IntRange(-MAX_PRIORITY, MAX_PRIORITY), required=True, help="Larger ones go first."
)
@click.pass_context
def set_tasks(ctx: click.Context, choice: Choice, everything: bool, priority: int) -> None:
    """Change the priority of tasks of PROJECT that wait or run: those given by URL or id, or all that the options choose."""
    _run(ctx, choice, "priority", _active(choice, everything), priority)


def _active(choice: Choice, everything: bool) -> frozenset[str]:
    return ACTIVE if everything or choice.errors or choice.callback is not None else frozenset()


def _run(ctx: click.Context, choice: Choice, action: str, states: frozenset[str], priority: int = 0) -> None:
    """Without ``states`` the choice is by name alone."""
    settings = options.settings_of(ctx, quiet=True)
    wanted = Wanted(states=states, errors=choice.errors, callback=choice.callback) if states else None
    with bootstrap.open_taskdb(settings) as taskdb:
        if wanted is not None and action == "retry":
            wanted = replace(wanted, until=taskdb.time())
        chosen = pages(taskdb, choice.project, choice.named, wanted)
        carry_out(settings, chosen, choice.project, action, priority=priority, dry_run=choice.dry_run)
    if action == "retry" and not choice.dry_run:
        _warn_of_rest(settings, choice.project)


def _warn_of_rest(settings: Settings, name: str) -> None:
    project = None
    # the orders are given: without a projectdb there is nothing to say
    with suppress(PyspiderLiteError), bootstrap.open_projectdb(settings) as projectdb:
        project = projectdb.get(name)
    if project is not None and project.status not in ACTIVE_PROJECT:
        say(f"{name} is {project.status}, so nothing of it runs: `project set {name} --status RUNNING`", err=True)
