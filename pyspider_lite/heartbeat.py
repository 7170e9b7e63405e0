"""What a worker says on ``status_queue``: which runs it holds, which are over, and that it lives. Every role but the scheduler has one.

One thread owns one FIFO connection, so the scheduler hears everything in the order in which it was said, and a beat always lists
what is held after all that was said before it (docs/architecture.md, "Where a run is").
"""

import itertools
import logging
import os
import secrets
import socket
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Raw, Struct

import pyspider_lite
from pyspider_lite import codec, outages
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.freeze_watch import FreezeWatch
from pyspider_lite.message_queue.connection import Connect, Connection
from pyspider_lite.models.batch import StatusBatch, StatusItem
from pyspider_lite.models.letter import Broken, LetterKind
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat, Claim, Handover, OrderKind, Release
from pyspider_lite.orders import Ordered, OrderWatch, actions_of
from pyspider_lite.readings import Reading

logger = logging.getLogger(__name__)

#: one message carries at most this many items and about this many bytes
_BATCH_ITEMS = 100
_BATCH_BYTES = 1024 * 1024
#: seconds that items gather while there are many; the first after a pause goes at once
_GATHER = 0.01
#: messages in status_queue up to which it is short, and seconds between two looks
_SHORT, _LOOK = 2, 0.03
#: what may wait to be sent; who has more to say is held back
_BUFFER_ITEMS = 4000
_BUFFER_BYTES = 32 * 1024 * 1024
#: seconds between two looks at whether to go on waiting
_ASK = 0.25
#: as much is kept of a message that could not be read, and of results that could not be stored
_BROKEN_BYTES, _RESULT_BYTES = 64 * 1024, 1024 * 1024


class WorkerInfo(Struct, frozen=True, kw_only=True):
    """Who a worker is."""

    #: host:pid:nonce, another one at every start
    worker: str
    role: str
    host: str
    pid: int
    version: str = ""
    config_hash: str = ""
    #: tasks it can have in hand at once
    pool_size: int = 1
    #: address of its XML-RPC server, "" if it has none
    rpc: str = ""
    #: address of its health port, "" if it has none
    health: str = ""

    @classmethod
    def make(cls, role: str, pool_size: int, config_hash: str = "", rpc: str = "", health: str = "") -> "WorkerInfo":
        """This process in this role."""
        host, pid = socket.gethostname(), os.getpid()
        return cls(
            worker=f"{host}:{pid}:{secrets.token_hex(4)}",
            role=str(role),
            host=host,
            pid=pid,
            version=getattr(pyspider_lite, "__version__", ""),
            config_hash=config_hash,
            pool_size=pool_size,
            rpc=rpc,
            health=health,
        )

    def beat(self, **said: Any) -> Beat:
        """A beat of this worker; ``said`` is the rest of it."""
        return Beat(**{**msgspec.structs.asdict(self), "time": time.time(), **said})


class _PackedBatch(Struct, frozen=True, tag="status"):
    """A StatusBatch of items that are encoded already: each item is encoded once, when it is said, so its size is known."""

    items: list[Raw]


class Heartbeat:
    """Says on ``status_queue`` what one worker does. All methods may be called from any thread.

    They are cheap, and block only when some thousands of items wait because the queue is away: that holds the worker back.
    """

    def __init__(
        self, info: WorkerInfo, connect: Connect, interval: float = 2.0, *, orders: Connect | None = None
    ) -> None:
        self.info = info
        self._orders = orders
        self._order_watch: OrderWatch | None = None
        self._state = ""
        self._interval = interval
        self._connection = Connection(connect, "status_queue")
        self._changed = threading.Condition()
        self._items: deque[bytes] = deque()
        self._bytes = 0
        #: items so far, and those that the sender took out and has not put yet
        self._said = self._in_hand = 0
        self._batches: dict[str, dict[RunKey, None]] = {}
        self._batch_of: dict[RunKey, str] = {}
        self._running: RunKey | None = None
        self._progress = 0
        self._serial = itertools.count(1)
        self._stopping = False
        self._next_beat = 0.0
        self._last_sent = 0.0
        #: somebody asks whether status_queue is short; whether it was, and when that was looked at
        self._asked, self._short, self._looked = False, True, 0.0
        self._sender = threading.Thread(target=self._send_all, name="heartbeat", daemon=True)
        self._watch = FreezeWatch(interval)

    # --- life ---

    def start(self) -> None:
        """The first beat goes out at once."""
        self._sender.start()
        self._watch.start()
        if self._order_watch is not None:
            self._order_watch.start()

    def obey(self, role: Ordered) -> None:
        """Have ``role`` follow the orders that come to this worker; to be called before `start`."""
        if self._orders is not None:
            actions = actions_of(role)
            actions[OrderKind.STOP] = partial(self._stop_role, role)
            self._order_watch = OrderWatch(self._orders, actions)

    def _stop_role(self, role: Ordered) -> None:
        self.set_state("stopping")
        role.stop()

    def stop(self, timeout: float) -> bool:
        """Send what waits, then the last beat, which says that this worker leaves; True if all went out in time."""
        self._watch.stop()
        if self._order_watch is not None:
            self._order_watch.stop()
        with self._changed:
            self._stopping = True
            self._connection.end(timeout)
            self._changed.notify_all()
        if self._sender.ident is not None:
            self._sender.join(timeout + 1.0)
        left = list(self._items)
        # beats are of no use later
        lost = sum(not isinstance(msgspec.msgpack.decode(packed, type=StatusItem), Beat) for packed in left)
        if lost:
            logger.warning("stopped with %d status items not sent; the scheduler will give those runs out again", lost)
        return not left and not self._sender.is_alive()

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which status_queue cannot be reached; None when it can."""
        return self._connection.waiting_since

    @property
    def state(self) -> str:
        """As in beats."""
        return "drained" if self._state == "draining" and not self._batch_of else self._state

    def describe(self) -> dict[str, str]:
        """For /readyz."""
        return {"state": self.state} if self._state else {}

    def readings(self) -> list[Reading]:
        """For /metrics."""
        return [
            Reading("in_hand", "Runs that this worker holds", {"": len(self._batch_of)}),
            Reading("pool_size", "Runs that it can hold at once", {"": self.info.pool_size}),
            Reading("done", "Runs that it finished or handed on", {"": self._progress}, counter=True),
            Reading("unsent", "Status items that wait for the broker", {"": len(self._items)}),
        ]

    # --- runs ---

    def take(self, queue: str, batch: str, runs: Sequence[RunKey]) -> None:
        """These runs came off ``queue`` in ``batch``: they are ours from now on."""
        packed = codec.pack(Claim(worker=self.info.worker, queue=queue, batch=batch, runs=list(runs)))
        with self._changed:
            self._wait_for_room(len(packed))
            for run in runs:
                self._drop(run)
                self._batches.setdefault(batch, {})[run] = None
                self._batch_of[run] = batch
            self._append(packed)

    def hand_over(self, queue: str, batch: str, runs: Sequence[RunKey]) -> None:
        """These runs are on ``queue`` now, in a new ``batch``: they are no longer ours, unless we took that very batch meanwhile."""
        with self._changed:
            over = [run for run in runs if self._batch_of.get(run) != batch]
        self._say(
            Handover(worker=self.info.worker, queue=queue, batch=batch, runs=list(runs)), over=over, done=len(runs)
        )

    def release(self, runs: Iterable[RunKey], *, cut_off: bool = False) -> None:
        """These runs are given back. They were not started, or ``cut_off``: their callback was still running when we had to end."""
        runs = list(runs)
        if runs:
            self._say(Release(worker=self.info.worker, runs=runs, cut_off=cut_off), over=runs)

    def report(self, report: Report) -> None:
        """Send a report. With its last part the run is over and no longer ours."""
        last = report.parts > 0
        self._say(report, over=(report.key,) if last else (), done=int(last))

    def clear(self) -> bool:
        """Whether nothing waits here and status_queue is short, so that something large holds nobody up. As it was at the last look; the
        next one is taken because this was asked."""
        with self._changed:
            if not self._asked:
                self._asked = True
                self._changed.notify_all()
            return self._short and not self._items and not self._in_hand

    def forget(self, runs: Iterable[RunKey]) -> None:
        """These runs are no longer ours, and the scheduler needs not hear of it but by the next beat."""
        with self._changed:
            for run in runs:
                self._drop(run)

    def running(self, run: RunKey | None) -> None:
        """The run that is being executed now; a worker that dies meanwhile has it counted against the task."""
        self._running = run

    def announce(self, run: RunKey | None, give_up: Callable[[], bool]) -> bool:
        """`running`, and a beat that says so is on status_queue when this returns. False as soon as ``give_up()``, which is asked four
        times a second."""
        with self._changed:
            self._running = run
            self._append(self._beat())
            self._changed.notify_all()
            mark = self._said
            while self._said - len(self._items) - self._in_hand < mark:
                if give_up():
                    return False
                self._changed.wait(_ASK)
        return True

    def broken(self, queue: str, reason: str, body: bytes) -> None:
        """A message of ``queue`` could not be read; the scheduler keeps the beginning of it with the reason."""
        kept = bytes(body[:_BROKEN_BYTES])
        self._say(
            Broken(queue=queue, reason=reason, body=kept, size=len(body), worker=self.info.worker, time=time.time())
        )

    def unstorable(self, report: Report, reason: str) -> None:
        """The results of this report could not be stored; the scheduler keeps them with the reason. Of large ones only the beginning."""
        body = codec.pack(msgspec.structs.replace(report, track={}, follows=[], messages=[], info=None))
        self._say(
            Broken(
                kind=LetterKind.RESULT,
                queue=QueueName.RESULTS,
                project=report.project,
                taskid=report.taskid,
                reason=reason,
                body=body[:_RESULT_BYTES],
                size=len(body),
                worker=self.info.worker,
                time=time.time(),
            )
        )

    def holds(self, run: RunKey) -> bool:
        """Whether the run is ours."""
        return run in self._batch_of

    @property
    def load(self) -> int:
        """How many runs are ours."""
        return len(self._batch_of)

    def new_batch_id(self) -> str:
        """An id for a batch that this worker makes; no other worker ever makes the same."""
        return f"{self.info.worker}:{next(self._serial)}"

    # --- what beats say ---

    def set_pool_size(self, pool_size: int) -> None:
        """How many tasks can be in hand at once; said with the next beat."""
        self.info = msgspec.structs.replace(self.info, pool_size=pool_size)

    def set_state(self, state: str) -> None:
        """ "" for at work, "paused", "draining" or "stopping"; said at once. Draining is shown as drained when nothing is in hand."""
        with self._changed:
            self._state = state
            self._next_beat = 0.0
            self._changed.notify_all()

    def frozen(self) -> bool:
        """True once after this process stood still (SIGSTOP, suspended machine, a blocked interpreter) for longer than the
        scheduler waits for a beat: what was not started has been given to others since."""
        return self._watch.take()

    # --- the buffer: under self._changed ---

    def _say(self, item: StatusItem, over: Iterable[RunKey] = (), done: int = 0) -> None:
        packed = _pack(item)
        with self._changed:
            self._wait_for_room(len(packed))
            for run in over:
                self._drop(run)
            self._progress += done
            self._append(packed)

    def _wait_for_room(self, size: int) -> None:
        while not self._stopping and (
            len(self._items) >= _BUFFER_ITEMS or (self._items and self._bytes + size > _BUFFER_BYTES)
        ):
            self._changed.wait(1.0)

    def _append(self, packed: bytes) -> None:
        self._items.append(packed)
        self._said += 1
        self._bytes += len(packed)
        if len(self._items) in (1, _BATCH_ITEMS) or self._bytes >= _BATCH_BYTES:
            self._changed.notify_all()

    def _drop(self, run: RunKey) -> None:
        batch = self._batch_of.pop(run, None)
        if batch is None:
            return
        runs = self._batches[batch]
        del runs[run]
        if not runs:
            del self._batches[batch]

    def _beat(self, leaving: bool = False) -> bytes:
        return codec.pack(
            self.info.beat(
                load=0 if leaving else len(self._batch_of),
                progress=self._progress,
                holds={} if leaving else {batch: list(runs) for batch, runs in self._batches.items()},
                running=None if leaving else self._running,
                state=self.state,
                waiting=outages.waiting(),
                leaving=leaving,
            )
        )

    # --- the sender's thread ---

    def _send_all(self) -> None:
        leaving = False
        while not leaving or self._items:
            with self._changed:
                self._wait_for_items()
                now = time.monotonic()
                if self._stopping and not leaving:
                    leaving = True
                    self._append(self._beat(leaving=True))
                elif now >= self._next_beat and not leaving:
                    self._next_beat = now + self._interval
                    self._append(self._beat())
                batch = self._next_batch()
            try:
                if batch:
                    self._send(batch)
                    self._last_sent = time.monotonic()
                self._look(now)
            except Exception:
                logger.exception("%d status items could not be sent; going on", len(batch))
            with self._changed:
                self._in_hand = 0
                self._changed.notify_all()
            if self._connection.expired():
                break
        self._connection.close()

    def _wait_for_items(self) -> None:
        """Until the next beat is due, or something was said and had its time to gather company."""
        while not self._stopping:
            now = time.monotonic()
            until = self._next_beat
            if self._items:
                if len(self._items) >= _BATCH_ITEMS or self._bytes >= _BATCH_BYTES:
                    return
                until = min(until, self._last_sent + _GATHER)
            if self._asked:
                until = min(until, self._looked + _LOOK)
            if now >= until:
                return
            self._changed.wait(until - now)

    def _look(self, now: float) -> None:
        """Is status_queue short? Only if somebody wants to know."""
        if self._asked and now >= self._looked + _LOOK:
            size = self._connection.call(lambda queue: queue.qsize())
            self._looked = now
            self._short = size is not None and size <= _SHORT
            self._asked = False

    def _next_batch(self) -> list[bytes]:
        batch: list[bytes] = []
        size = 0
        while self._items and len(batch) < _BATCH_ITEMS and (not batch or size + len(self._items[0]) <= _BATCH_BYTES):
            batch.append(self._items.popleft())
            size += len(batch[-1])
        self._bytes -= size
        self._in_hand = len(batch)
        self._changed.notify_all()
        return batch

    def _send(self, batch: list[bytes]) -> None:
        try:
            body = codec.encode(_PackedBatch(items=[Raw(packed) for packed in batch]))
            if not self._connection.put(body):
                with self._changed:
                    self._items.extendleft(reversed(batch))
        except MessageTooLarge as error:
            if len(batch) > 1:
                for packed in batch:
                    self._send([packed])
                return
            replacement = _too_large(batch[0], error)
            if replacement is not None and len(replacement) < len(batch[0]):
                self._send([replacement])


def _pack(item: StatusItem) -> bytes:
    """The item as msgpack. A report that has no encoding becomes a failed one that says why."""
    try:
        return codec.pack(item)
    except Exception as error:
        if not isinstance(item, Report):
            raise
        logger.error("%s:%s: its report has no encoding: %s", item.project, item.taskid, error)
        return codec.pack(_failed(item, f"the report cannot be encoded: {error}"))


def _too_large(packed: bytes, error: MessageTooLarge) -> bytes | None:
    """What is sent in place of an item that is too large; None drops it."""
    item = codec.unpack(codec.pack(_PackedBatch(items=[Raw(packed)])), StatusBatch).items[0]
    if not isinstance(item, Report):
        logger.error("a %s was dropped: %s", type(item).__name__, error)
        return None
    logger.error("%s:%s: its report is too large: %s", item.project, item.taskid, error)
    return codec.pack(_failed(item, f"the report is too large: {error}"))


def _failed(report: Report, reason: str) -> Report:
    """A report that ends the same run as failed (behaviour P22), without anything that the run produced."""
    process = {"ok": False, "time": 0.0, "follows": 0, "result": None, "logs": reason, "exception": reason}
    return Report(
        project=report.project,
        taskid=report.taskid,
        url=report.url,
        run=report.run,
        generation=report.generation,
        control=report.control,
        ok=False,
        track={"process": process},
    )
