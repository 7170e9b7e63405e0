"""`dead-letter`: what was given up, with payload and reason: look at it, try it again, throw it away."""

import json
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any, TypeVar

import click
import msgspec
from msgspec import Struct

from pyspider_lite import assembly, bootstrap, exit_codes
from pyspider_lite.cli import letter_ways, options
from pyspider_lite.cli.task_orders import Orders
from pyspider_lite.cli.terminal import say
from pyspider_lite.codec import bytes_to_text
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import BrokenMessage, ConfigError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.letter import DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.settings import Settings

F = TypeVar("F", bound=Callable[..., Any])

#: letters read at once without their payloads, and with them
_HEADS, _WHOLE = 500, 20
#: seconds for a queue to take one
_PATIENCE = 10.0
#: reasons named by `retry`
_NAMED = 20
_SPAN = re.compile(r"(\d+)([smhd])")
_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400}


class Chosen(Struct, frozen=True, kw_only=True):
    """Which letters are meant."""

    ids: tuple[int, ...] = ()
    kind: str | None = None
    project: str | None = None
    #: not younger than this, Unix time
    until: float = float("inf")

    def pages(self, taskdb: TaskDB, size: int, *, with_payload: bool) -> Iterator[list[DeadLetter]]:
        """The newest first. Raises ConfigError for an id that is not there."""
        for seq in self.ids:
            letter = taskdb.dead_letter(seq)
            if letter is None:
                raise ConfigError(f"there is no dead letter {seq}: `dead-letter list` has their ids")
            yield [letter]
        before: int | None = None
        while not self.ids and (rows := self._page(taskdb, size, before, with_payload)):
            before = rows[-1].seq
            if found := [row for row in rows if row.time <= self.until]:
                yield found

    def _page(self, taskdb: TaskDB, size: int, before: int | None, with_payload: bool) -> list[DeadLetter]:
        return taskdb.dead_letters(size, before=before, kind=self.kind, project=self.project, with_payload=with_payload)


def _span(ctx: click.Context, param: click.Parameter, value: str | None) -> float | None:
    found = _SPAN.fullmatch(value) if value is not None else None
    if value is not None and found is None:
        raise click.BadParameter(f"{value!r} is no length of time, as 30m, 12h or 7d")
    return int(found[1]) * _SECONDS[found[2]] if found else None


def _filters(function: F) -> F:
    decorators: tuple[Callable[[Any], Any], ...] = (
        click.option("--project", help="Only those of this project."),
        click.option("--kind", type=click.Choice([str(kind) for kind in LetterKind]), help="Only those of this kind."),
    )
    for add in decorators:
        function = add(function)
    return function


def _which(function: F) -> F:
    decorators: tuple[Callable[[Any], Any], ...] = (
        click.option("--dry-run", is_flag=True, help="Only count them."),
        click.option("--all", "everything", is_flag=True, help="All of them."),
        click.option(
            "--older-than", "age", callback=_span, metavar="SPAN", help="Only those as old as 30m, 12h or 7d."
        ),
        _filters,
        click.argument("ids", nargs=-1, type=int, metavar="[ID]..."),
    )
    for add in decorators:
        function = add(function)
    return function


@click.group("dead-letter")
def dead_letter_command() -> None:
    """Dead letters: messages that could not be read, results that could not be stored, tasks that were given up.

    They are kept in the taskdb with the reason: the newest 10,000, 64 MiB, for 30 days. A task whose retries are used up is no dead
    letter: see `task list PROJECT --status failed` and `task retry`.
    """


@dead_letter_command.command("list")
@_filters
@click.option("--limit", type=click.IntRange(1), default=100, show_default=True, help="At most so many.")
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table", show_default=True)
@click.pass_context
def list_letters(ctx: click.Context, kind: str | None, project: str | None, limit: int, form: str) -> None:
    """List dead letters, the newest first: id, time, kind, what it was, bytes, reason."""
    with bootstrap.open_taskdb(options.settings_of(ctx, quiet=True)) as taskdb:
        for page in Chosen(kind=kind, project=project).pages(taskdb, min(limit, _HEADS), with_payload=False):
            for letter in page[:limit]:
                say(json.dumps(_head(letter), ensure_ascii=False) if form == "jsonl" else _line(letter))
            limit -= len(page)
            if limit <= 0:
                return


@dead_letter_command.command()
@click.argument("letter_id", type=int, metavar="ID")
@click.option("--raw", is_flag=True, help="Write the payload as it is.")
@click.pass_context
def show(ctx: click.Context, letter_id: int, raw: bool) -> None:
    """Print the dead letter ID as JSON: payload, and whether it can be tried again."""
    with bootstrap.open_taskdb(options.settings_of(ctx, quiet=True)) as taskdb:
        ((letter,),) = Chosen(ids=(letter_id,)).pages(taskdb, 1, with_payload=True)
        if raw:
            sys.stdout.buffer.write(letter.payload)
            return
        shown = _head(letter)
        if letter.kind == LetterKind.TASK:
            shown["payload"] = [msgspec.to_builtins(task) for task in taskdb.get(letter.project, [letter.taskid])]
            shown["retry"] = "the task is run again" if shown["payload"] else "the task is gone"
        else:
            try:
                shown["payload"] = letter_ways.shown(letter)
                shown["retry"] = f"goes to {letter_ways.way_of(letter).queue}"
            except BrokenMessage as error:
                shown["retry"] = f"cannot be tried again: {error}"
                shown.setdefault("payload", bytes_to_text(letter.payload))
    say(json.dumps(shown, ensure_ascii=False, indent=2), lines=True)


@dead_letter_command.command()
@_which
@click.pass_context
def retry(ctx: click.Context, /, dry_run: bool, **which: Any) -> int:
    """Put dead letters back where they belong: those with these IDs, or all that the options choose.

    A message that can be read now goes on its queue again, results to the result workers, a submission to the scheduler; a task runs
    again with all its retries. A letter is removed when that is done. Ends with 1 if some could not be tried again; they stay.
    """
    settings = options.settings_of(ctx, quiet=True)
    refused: list[str] = []
    done = 0
    with bootstrap.open_taskdb(settings) as taskdb, _Post(settings, taskdb, dry_run) as post:
        for page in _chosen(**which).pages(taskdb, _WHOLE, with_payload=True):
            over: list[int] = []
            try:
                for letter in page:
                    try:
                        post.send(letter)
                        over.append(letter.seq)
                    except BrokenMessage as error:
                        refused.append(f"{letter.seq}: {error}")
            finally:
                done += len(over)
                if not dry_run:
                    taskdb.drop_dead_letters(over)
    say(f"{done} {'would be ' if dry_run else ''}tried again, {len(refused)} cannot be")
    for line in refused[:_NAMED]:
        say(line, err=True)
    return exit_codes.TASKS_FAILED if refused else exit_codes.DONE


@dead_letter_command.command()
@_which
@click.pass_context
def purge(ctx: click.Context, /, dry_run: bool, **which: Any) -> None:
    """Remove dead letters for good: those with these IDs, or all that the options choose."""
    chosen, purged = _chosen(**which), 0
    with bootstrap.open_taskdb(options.settings_of(ctx, quiet=True)) as taskdb:
        for page in chosen.pages(taskdb, _HEADS, with_payload=False):
            ids = [letter.seq for letter in page]
            purged += len(ids) if dry_run else taskdb.drop_dead_letters(ids)
    say(f"{purged} {'would be ' if dry_run else ''}removed")


def _chosen(ids: Sequence[int], kind: str | None, project: str | None, age: float | None, everything: bool) -> Chosen:
    filtered = any(value is not None for value in (kind, project, age))
    if bool(ids) == (filtered or everything):
        raise ConfigError(
            "give ids, or choose by --kind, --project, --older-than or --all" + (", not both" if ids else "")
        )
    until = float("inf") if age is None else time.time() - age
    return Chosen(ids=tuple(ids), kind=kind, project=project, until=until)


class _Post:
    """Brings letters on their way. Queues are connected when something goes there."""

    def __init__(self, settings: Settings, taskdb: TaskDB, dry_run: bool) -> None:
        self._settings = settings
        self._taskdb = taskdb
        self._dry_run = dry_run
        self._orders = Orders(settings)
        self._stack = ExitStack()
        self._queues: dict[QueueName, MessageQueue] = {}

    def __enter__(self) -> "_Post":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def send(self, letter: DeadLetter) -> None:
        """Raises BrokenMessage if it has no way."""
        if letter.kind == LetterKind.TASK:
            self._run_again(letter)
            return
        way = letter_ways.way_of(letter)
        if not self._dry_run:
            self._queue(way.queue).put(way.body, _PATIENCE)

    def _run_again(self, letter: DeadLetter) -> None:
        rows = self._taskdb.get(letter.project, [letter.taskid])
        if not rows:
            raise BrokenMessage("the task is gone")
        if not self._dry_run:
            outcomes = self._orders.give(letter.project, "retry", rows)
            if outcomes.get("invalid"):
                raise BrokenMessage("the task cannot be stored as it is")

    def _queue(self, name: QueueName) -> MessageQueue:
        if name not in self._queues:
            queue = self._queues[name] = assembly.connector(self._settings, name)()
            self._stack.callback(queue.close)
        return self._queues[name]


# --- shown --------------------------------------------------------------------------------------------------------------


def _head(letter: DeadLetter) -> dict[str, Any]:
    return {
        "id": letter.seq, "time": letter.time, "kind": letter.kind, "project": letter.project, "taskid": letter.taskid,
        "queue": letter.queue, "size": letter.size, "reason": letter.reason,
    }  # fmt: skip


def _line(letter: DeadLetter) -> str:
    when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(letter.time))
    what = f"{letter.project}:{letter.taskid}" if letter.project else letter.queue
    reason = " ".join(letter.reason.split())[:200]
    return f"{letter.seq:<6} {when}  {letter.kind:<10} {what}  {letter.size} B  {reason}"
