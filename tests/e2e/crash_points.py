"""Starts a daemon of the suite that kills itself, or the broker, at steps that are armed: `python crash_points.py FOLDER ARGUMENTS...`.

A step is armed by the file FOLDER/armed/ROLE-STEP, which names a project; FOLDER/broker has the broker's process. Who comes to that step with a run
of the project moves the file to FOLDER/fired, writes down what he had in hand, and sends SIGKILL. The product knows nothing of this.
"""

import contextlib
import json
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from pyspider_lite import cli, codec, consumer
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.fetcher.page_sender import PageSender
from pyspider_lite.heartbeat import status_items
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.sender import StatusSender
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.connection import Connection
from pyspider_lite.models.batch import PageBatch, ResultBatch, TaskBatch
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Claim
from pyspider_lite.processor.outbox import ResultOutbox
from pyspider_lite.result_worker import ResultWorker
from pyspider_lite.scheduler.commit import Committer
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.queues import Outlet

#: where tasks, pages and results are taken from
_WORK = (QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.RESULTS)
#: seconds after which a get is taken for one that hangs
_GET = 2.0


class Here:
    """This process, as far as the steps need it."""

    folder: Path
    role = ""
    heartbeat: Heartbeat | None = None
    leases: Leases | None = None
    lock = threading.Lock()
    #: gets that are under way, and whether none may begin any more
    gets = threading.Condition()
    getting = 0
    dying = False
    #: messages that are off their queue and not yet taken in, by queue
    arriving: dict[str, list[bytes]] = {}
    #: status items that are being sent
    sending: list[bytes] = []
    #: runs of the batches that the scheduler put
    batches: dict[str, list[RunKey]] = {}


def reach(step: str, runs: Iterable[RunKey], role: str = "") -> None:
    """The process is at this step with these runs."""
    runs = list(runs)
    name = f"{role or Here.role}-{step}"
    # threads come to steps at the same time, and only one of them can be where the process dies
    with Here.lock:
        try:
            if (Here.folder / "armed" / name).read_text() not in {run[0] for run in runs}:
                return
            (Here.folder / "armed" / name).rename(Here.folder / "fired" / name)
        except FileNotFoundError:
            return
        if role != "broker" and Here.role != "scheduler":
            # so that all it has is seen
            with Here.gets:
                Here.dying = True
                Here.gets.wait_for(lambda: not Here.getting, _GET)
        held = sorted({(run[0], run[1]) for run in [*runs, *_in_hand()]})
        (Here.folder / "fired" / name).write_text(json.dumps(held))
        pid = int((Here.folder / "broker").read_text()) if role == "broker" else os.getpid()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _in_hand() -> list[Any]:
    """Also the runs of what was said and not heard yet."""
    if Here.leases is not None:
        return list(Here.leases.in_flight())
    if Here.heartbeat is None:
        return []
    held: list[Any] = list(Here.heartbeat._held)
    for body in [body for bodies in list(Here.arriving.values()) for body in bodies]:
        held += _runs(body)
    for item in status_items.unpack([*Here.sending, *Here.heartbeat._sender._items.copy()]):
        held += [item.key] if isinstance(item, Report) else getattr(item, "runs", [])
    return held


def _runs(body: bytes) -> list[RunKey]:
    """Of a message with tasks, pages or results; [] for any other."""
    for kind, of in (
        (TaskBatch, lambda batch: [task.key for task in batch.tasks]),
        (PageBatch, lambda batch: [page.task.key for page in batch.pages]),
        (ResultBatch, lambda batch: [report.key for report in batch.reports]),
    ):
        try:
            return list(of(codec.decode(body, kind)))
        except BrokenMessage:
            continue
    return []


def before(owner: Any, name: str, look: Callable[..., None]) -> None:
    """Call ``look`` with the arguments of each call of a method, before it."""
    original = getattr(owner, name)

    def patched(self: Any, *arguments: Any, **named: Any) -> Any:
        look(self, *arguments, **named)
        return original(self, *arguments, **named)

    setattr(owner, name, patched)


def after(owner: Any, name: str, look: Callable[..., None]) -> None:
    """The same, after it."""
    original = getattr(owner, name)

    def patched(self: Any, *arguments: Any, **named: Any) -> Any:
        answer = original(self, *arguments, **named)
        look(self, *arguments, **named)
        return answer

    setattr(owner, name, patched)


# --- the steps -------------------------------------------------------------------------------------------------------------


def workers() -> None:
    """What all workers do: take, claim, report."""
    before(Heartbeat, "start", lambda self: setattr(Here, "heartbeat", self))
    got = consumer._get

    def get(limit: int, timeout: float, watch: bool, queue: MessageQueue) -> list[Any]:
        with Here.gets:
            Here.gets.wait_for(lambda: not Here.dying, 60)
            Here.getting += 1
        try:
            found = got(limit, timeout, True, queue)  # what is taken while it dies is seen before it does
            Here.arriving[queue.name] = [message.body for _, message in found]
            return found
        finally:
            with Here.gets:
                Here.getting -= 1
                Here.gets.notify_all()

    consumer._get = get
    after(consumer.Consumer, "_take_in", lambda self, received: Here.arriving.pop(received[0], None))

    def taken(self: Heartbeat, queue: str, batch: str, runs: list[RunKey]) -> None:
        if queue in _WORK:
            reach("taken", runs)

    def said(self: StatusSender, batch: list[bytes]) -> None:
        items, Here.sending = status_items.unpack(batch), []
        for item in items:
            if isinstance(item, Claim) and item.queue in _WORK:
                reach("claimed", item.runs)
        reach("reported", [item.key for item in items if isinstance(item, Report)])

    before(Heartbeat, "take", taken)
    before(StatusSender, "_send", lambda self, batch: setattr(Here, "sending", batch))
    after(StatusSender, "_send", said)


def fetcher() -> None:
    """A page is there; it is on its queue."""
    before(PageSender, "add", lambda self, page: reach("fetched", [page.task.key]))
    before(PageSender, "_sent", lambda self, batch, runs, weight: reach("published", runs))


def processor() -> None:
    """A callback is over; its results are on their queue; or it has none and is to be reported."""

    def over(self: ResultOutbox, over: Any) -> None:
        reach("called" if any(report.items for report in over.reports) else "reporting", [over.page.task.key])

    def handed(self: Heartbeat, queue: str, batch: str, runs: list[RunKey]) -> None:
        if queue == QueueName.RESULTS:
            reach("published", runs)

    before(ResultOutbox, "take", over)
    before(Heartbeat, "hand_over", handed)


def result_worker() -> None:
    """Results are stored."""
    after(ResultWorker, "_store", lambda self, works: reach("stored", [work.report.key for work in works]))


def scheduler() -> None:
    """Reports are heard, written, committed; tasks are leased, on their queue."""
    before(Leases, "__init__", lambda self: setattr(Here, "leases", self))

    def of(batch: Any) -> list[RunKey]:
        return [report.key for report in batch.reports]

    before(Committer, "apply", lambda self, batch, now: reach("received", of(batch)))
    after(Committer, "_write", lambda self, tx, plan, batch, now: reach("written", of(batch)))
    after(Committer, "apply", lambda self, batch, now: reach("committed", of(batch)))

    def leased(self: Outlet, batch: str, body: bytes) -> None:
        Here.batches[batch] = _runs(body)
        reach("leased", Here.batches[batch])

    before(Outlet, "put", leased)
    before(Inbox, "sent", lambda self, batch: reach("published", Here.batches.pop(batch)))


def broker() -> None:
    """Somebody puts a message of work, or has put it."""
    names = {QueueName.TO_FETCHER: "tasks", QueueName.TO_PROCESSOR: "pages", QueueName.RESULTS: "results"}

    def look(when: str) -> Callable[..., None]:
        def at_put(self: Connection, body: bytes, may: Callable[[], bool] | None = None) -> None:
            if self._label in names:
                reach(f"{names[self._label]}-{when}", _runs(body), role="broker")

        return at_put

    before(Connection, "put", look("putting"))
    after(Connection, "put", look("put"))


STEPS = {
    "scheduler": [scheduler],
    "fetcher": [workers, fetcher],
    "processor": [workers, processor],
    "result_worker": [workers, result_worker],
}

if __name__ == "__main__":
    Here.folder = Path(sys.argv[1])
    Here.role = next(word for word in sys.argv if word in STEPS)
    for plant in (*STEPS[Here.role], broker):
        plant()
    sys.exit(cli.main(sys.argv[2:]))
