"""`cluster`: who is in the cluster and what it lacks, and orders to its workers. Needs the taskdb and the broker, no ports."""

import difflib
import json
import socket
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from urllib.parse import urlsplit

import click

from pyspider_lite import assembly, bootstrap, exit_codes, orders
from pyspider_lite.cli import cluster_view, options
from pyspider_lite.cli.at_once import at_once
from pyspider_lite.cli.cluster_view import View
from pyspider_lite.cli.terminal import say
from pyspider_lite.database.base import Leader, TaskDB
from pyspider_lite.errors import ConfigError, QueueError
from pyspider_lite.log import mask_url
from pyspider_lite.message_queue.description import describe
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.worker import OrderKind, WorkerRow
from pyspider_lite.rpc import client
from pyspider_lite.rpc.address import is_loopback
from pyspider_lite.settings import Settings

#: seconds for the database and the broker to answer
_PATIENCE = 8.0
#: seconds that an order may take to show
ORDER_PATIENCE = 10.0
_LOOK_EACH = 0.25
#: silent schedulers that are asked by XML-RPC, and seconds for their answers
_ASKED, _ANSWER = 4, 3.0
_NOT_A_SCHEDULER = {
    OrderKind.RESUME: "a scheduler is never paused: what is may be a fetcher (`cluster resume fetcher`) or a project (`project show NAME`)",
    **{
        kind: f"a scheduler cannot {kind}, only stop: {kind} the fetchers (`cluster {kind} fetcher`) to hold everything, "
        "or stop projects (`project stop NAME`)"
        for kind in (OrderKind.PAUSE, OrderKind.DRAIN)
    },
}


@click.group("cluster")
def cluster_command() -> None:
    """The cluster: its workers, what it lacks, orders to workers. Works on every machine that has the config.json."""


@cluster_command.command("list")
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table", show_default=True)
@click.pass_context
def list_workers(ctx: click.Context, form: str) -> int:
    """List the workers, the leader and what waits in the queues.

    Ends with 0 when the cluster is complete: a scheduler leads and at least one fetcher, processor and result_worker are at work
    and wait for no server.
    With 1 when something is missing or does not answer; the lines that begin with "missing:" say what.
    """
    settings = options.settings_of(ctx, quiet=True)
    view = look(settings)
    if view.hears_nobody and view.depths is not None:
        _try_broker(settings, view)
    if form == "jsonl":
        for record in cluster_view.as_records(view):
            say(json.dumps(record, ensure_ascii=False))
    else:
        for line in cluster_view.as_lines(view):
            say(line)
    return exit_codes.INCOMPLETE if cluster_view.missing(view) else exit_codes.DONE


def look(settings: Settings) -> View:
    """The cluster now, as far as its servers answer within some seconds. Raises ConfigError for settings of no use."""
    view = View(config_hash=settings.digest)
    taskdb, depths = at_once(
        [lambda: _ask_taskdb(settings), lambda: measure(settings)],
        _PATIENCE,
    )
    if isinstance(taskdb, Exception):
        view.problems.append(_problem("taskdb", settings.taskdb, taskdb))
    else:
        view.now, view.leader, view.workers, view.letters = taskdb
        view.answers = ask_schedulers(settings, view)
    if isinstance(depths, Exception):
        view.problems.append(_problem("message-queue", settings.queue_url, depths))
    else:
        view.depths = depths
    return view


def _try_broker(settings: Settings, view: View) -> None:
    """One that has an alarm, or is full, tells how many messages it has, and takes none of what workers say."""
    (found,) = at_once([partial(describe, settings.queue_url, settings.queue_prefix)], _PATIENCE)
    if isinstance(found, QueueError):
        view.refusal = _problem("message-queue", settings.queue_url, found)


def ask_schedulers(settings: Settings, view: View) -> dict[str, dict[str, float]]:
    """What silent schedulers wait for, of those that answer: who cannot write into the taskdb cannot be seen there."""
    here = socket.gethostname()
    # an address that another one has by now is of no use, and of two that had it the last one may still be there
    seen = {row.beat.rpc for row in view.workers or () if view.alive(row)}
    silent = [
        row
        for row in sorted(view.workers or (), key=view.age)
        if row.beat.role == Role.SCHEDULER
        and not view.alive(row)
        and row.beat.rpc
        and (row.beat.host == here or not is_loopback(urlsplit(row.beat.rpc).hostname or ""))
    ]
    by_address = {row.beat.rpc: row for row in reversed(silent) if row.beat.rpc not in seen}
    asked = list(by_address.values())[-_ASKED:]
    found = at_once([partial(_ask_waiting, settings, row.beat.rpc) for row in asked], _ANSWER)
    return {
        row.beat.worker: answer for row, answer in zip(asked, found, strict=True) if not isinstance(answer, Exception)
    }


def _ask_waiting(settings: Settings, url: str) -> dict[str, float]:
    answer = client.call(url, settings.rpc_secret, "waiting", timeout=_ANSWER)
    return {str(where): float(since) for where, since in answer.items()}


def _problem(name: str, url: str, error: Exception) -> str:
    if isinstance(error, ConfigError):
        raise error
    shown = mask_url(url, alone=True)
    text = exit_codes.sentence(error)
    return f"{name}: {text}" if shown in text else f"{name} {shown}: {text}"


def _ask_taskdb(settings: Settings) -> tuple[float, Leader | None, list[WorkerRow], dict[str, int]]:
    with bootstrap.open_taskdb(settings) as taskdb:
        letters = Counter[str]()
        for found in taskdb.count_dead_letters():
            letters[found.kind] += found.count
        return taskdb.time(), taskdb.leader(), taskdb.workers(), dict(letters)


def measure(settings: Settings) -> dict[str, int]:
    """Messages in each queue."""
    depths = {}
    for name in QueueName:
        queue = assembly.connector(settings, name)()
        try:
            depths[str(name)] = queue.qsize()
        finally:
            queue.close()
    return depths


# --- orders -------------------------------------------------------------------------------------------------------------


def _order_command(kind: OrderKind, text: str) -> click.Command:
    @click.command(str(kind), help=text + _WHICH)
    @click.argument("workers", nargs=-1, required=True, metavar="WORKER...")
    @click.pass_context
    def command(ctx: click.Context, workers: tuple[str, ...]) -> int:
        settings = options.settings_of(ctx, quiet=True)
        with bootstrap.open_taskdb(settings) as taskdb:
            view = View(now=taskdb.time(), leader=taskdb.leader(), workers=taskdb.workers())
            chosen = choose(workers, _candidates(view), kind)
            if not view.leads:
                say("no scheduler leads, so nobody hears what becomes of the order", err=True)
            # while nobody leads nobody is heard: schedulers come last
            schedulers = [row for row in chosen if row.beat.role == Role.SCHEDULER]
            others = [row for row in chosen if row not in schedulers]
            return max(_carry_out(settings, taskdb, rows, kind) for rows in (others, schedulers))

    return command


def _carry_out(settings: Settings, taskdb: TaskDB, rows: Sequence[WorkerRow], kind: OrderKind) -> int:
    for row in rows:
        _give(settings, row, kind)
    return _await(taskdb, rows, kind)


def _candidates(view: View) -> list[WorkerRow]:
    """Who may be given an order: who was heard not long ago; while nobody leads nobody is heard, so then all."""
    return [row for row in view.sorted() if not view.leads or view.age(row) <= cluster_view.GONE_AFTER]


def choose(words: Sequence[str], rows: Sequence[WorkerRow], kind: OrderKind) -> list[WorkerRow]:
    """The workers that ``words`` mean, each once. Raises ConfigError for a word that means none, or more than it may."""
    chosen: dict[str, WorkerRow] = {}
    for word in words:
        found = _meant(word, rows)
        able = [row for row in found if kind == OrderKind.STOP or row.beat.role != Role.SCHEDULER]
        if not able:
            raise ConfigError(_NOT_A_SCHEDULER[kind])
        chosen.update((row.beat.worker, row) for row in able)
    return list(chosen.values())


def _meant(word: str, rows: Sequence[WorkerRow]) -> list[WorkerRow]:
    for name in ("worker", "host", "role"):
        found = [row for row in rows if getattr(row.beat, name) == word]
        if found:
            return found
    found = [row for row in rows if row.beat.worker.startswith(word)]
    if len(found) == 1:
        return found
    if found:
        some = ", ".join(row.beat.worker for row in found[:5])
        raise ConfigError(f"{word} is the beginning of {len(found)} workers ({some}): give more of it")
    known = [text for row in rows for text in (row.beat.worker, row.beat.host, row.beat.role)]
    near = difflib.get_close_matches(word, known, 1)
    hint = f"did you mean {near[0]}?" if near else "`cluster list` shows who is there"
    raise ConfigError(f"there is no worker, host or role {word}; {hint}")


def _give(settings: Settings, row: WorkerRow, kind: OrderKind) -> None:
    queue = assembly.connect_orders(settings, row.beat.worker)
    try:
        orders.give(queue, kind)
    finally:
        queue.close()


def _await(taskdb: TaskDB, rows: Sequence[WorkerRow], kind: OrderKind) -> int:
    """Until each has done it, or it takes too long; says what became of it."""
    wanted = _DONE[kind]
    left = {row.beat.worker: row for row in rows}
    deadline = time.monotonic() + ORDER_PATIENCE
    now: dict[str, WorkerRow] = {}
    while left and time.monotonic() < deadline:
        now = {row.beat.worker: row for row in taskdb.workers()}
        for worker in [worker for worker in left if wanted(now.get(worker))]:
            say(f"{left.pop(worker).beat.role} {worker}: {_SAID[kind]}")
        if left:
            time.sleep(_LOOK_EACH)
    for worker, row in left.items():
        state = now[worker].beat.state if worker in now else ""
        if state in ("draining", "stopping"):
            say(f"{row.beat.role} {worker}: {state}, {now[worker].beat.load} tasks still in hand")
        else:
            say(f"{row.beat.role} {worker}: not seen to {kind} within {ORDER_PATIENCE:.0f} s; its log says more")
    failed = [worker for worker in left if worker not in now or now[worker].beat.state not in ("draining", "stopping")]
    return exit_codes.REFUSED if failed else exit_codes.DONE


_DONE: dict[OrderKind, Callable[[WorkerRow | None], bool]] = {
    OrderKind.PAUSE: lambda row: row is not None and row.beat.state == "paused",
    OrderKind.DRAIN: lambda row: row is not None and row.beat.state == "drained",
    OrderKind.RESUME: lambda row: row is not None and row.beat.state == "",
    OrderKind.STOP: lambda row: row is None,
}
_SAID = {
    OrderKind.PAUSE: "paused",
    OrderKind.DRAIN: "drained, nothing in hand",
    OrderKind.RESUME: "at work",
    OrderKind.STOP: "stopped",
}
_WHICH = """

WORKER is the name of a worker as `cluster list` shows it, or a beginning that only one has; or a host or a role, for all workers of
it. Waits up to 10 seconds for it to show. Ends with 0 when the order was followed, with 3 when that could not be seen.
"""
for _kind, _text in {
    OrderKind.PAUSE: "Have workers take nothing new; what they have is finished. A scheduler cannot pause.",
    OrderKind.RESUME: "Have workers that were paused or drained work again.",
    OrderKind.DRAIN: "Have workers take nothing new, give back what they have not started and finish the rest; their state is then "
    "drained. (A result_worker stores all that it has.) A scheduler cannot drain.",
    OrderKind.STOP: "Have workers end as after SIGTERM: they finish what runs, give back the rest, and exit with code 0. Supervisor "
    "leaves them stopped (autorestart=unexpected), systemd (Restart=on-failure) and `all` too. A scheduler that leads "
    "hands over to one that stands by.",
}.items():
    cluster_command.add_command(_order_command(_kind, _text))
