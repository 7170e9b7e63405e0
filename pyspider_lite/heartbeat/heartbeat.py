"""A worker's voice: `assembly` gives one to every role but the scheduler, and the role tells it of each run that it takes and ends.

The scheduler hears everything in the order in which it was said (`sender`), and a beat always lists what is held after all that was
said before it (docs/architecture.md, "Where a run is").
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial

import msgspec

from pyspider_lite import codec, outages
from pyspider_lite.freeze_watch import FreezeWatch
from pyspider_lite.heartbeat import status_items
from pyspider_lite.heartbeat.held_runs import HeldRuns
from pyspider_lite.heartbeat.sender import StatusSender
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.connection import Connect
from pyspider_lite.models.batch import StatusItem
from pyspider_lite.models.letter import Broken, LetterKind
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Claim, Handover, OrderKind, Release
from pyspider_lite.orders import Ordered, OrderWatch, actions_of
from pyspider_lite.readings import Reading

#: as much is kept of a message that could not be read, and of results that could not be stored
_BROKEN_BYTES, _RESULT_BYTES = 64 * 1024, 1024 * 1024


class Heartbeat:
    """Says on ``status_queue`` what one worker does. All methods may be called from any thread.

    They are cheap, and block only when some thousands of items wait because the queue is away: that holds the worker back.
    """

    def __init__(
        self,
        info: WorkerInfo,
        connect: Connect,
        interval: float = 2.0,
        *,
        orders: Connect | None = None,
        last_words: Connect | None = None,
    ) -> None:
        """``last_words`` opens status_queue without its bound."""
        self.info = info
        self._orders = orders
        self._order_watch: OrderWatch | None = None
        self._state = ""
        self._held = HeldRuns()
        self._running: RunKey | None = None
        self._progress = 0
        self._serial = itertools.count(1)
        self._sender = StatusSender(connect, interval, self._beat, last_words)
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
        return self._sender.stop(timeout)

    @property
    def waiting_since(self) -> float | None:
        """Unix time since which status_queue cannot be reached; None when it can."""
        return self._sender.waiting_since

    @property
    def state(self) -> str:
        """As in beats."""
        return "drained" if self._state == "draining" and not self._held else self._state

    def describe(self) -> dict[str, str]:
        """For /readyz."""
        return {"state": self.state} if self._state else {}

    def readings(self) -> list[Reading]:
        """For /metrics."""
        return [
            Reading("in_hand", "Runs that this worker holds", {"": len(self._held)}),
            Reading("pool_size", "Runs that it can hold at once", {"": self.info.pool_size}),
            Reading("done", "Runs that it finished or handed on", {"": self._progress}, counter=True),
            Reading("unsent", "Status items that wait for the broker", {"": len(self._sender)}),
        ]

    # --- runs ---

    def take(self, queue: str, batch: str, runs: Sequence[RunKey]) -> None:
        """These runs came off ``queue`` in ``batch``: they are ours from now on."""
        packed = codec.pack(Claim(worker=self.info.worker, queue=queue, batch=batch, runs=list(runs)))
        with self._sender.changed:
            self._sender.wait_for_room(len(packed))
            self._held.add(batch, runs)
            self._sender.append(packed)

    def hand_over(self, queue: str, batch: str, runs: Sequence[RunKey]) -> None:
        """These runs are on ``queue`` now, in a new ``batch``: they are no longer ours, unless we took that very batch meanwhile."""
        with self._sender.changed:
            over = self._held.outside(batch, runs)
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
        return self._sender.clear()

    def forget(self, runs: Iterable[RunKey]) -> None:
        """These runs are no longer ours, and the scheduler needs not hear of it but by the next beat."""
        with self._sender.changed:
            self._held.drop(runs)

    def running(self, run: RunKey | None) -> None:
        """The run that is being executed now; a worker that dies meanwhile has it counted against the task."""
        self._running = run

    def announce(self, run: RunKey | None, give_up: Callable[[], bool]) -> bool:
        """`running`, and a beat that says so is on status_queue when this returns. False as soon as ``give_up()``, which is asked four
        times a second."""
        with self._sender.changed:
            self._running = run
            return self._sender.beat_and_wait(give_up)

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
        return run in self._held

    @property
    def load(self) -> int:
        """How many runs are ours."""
        return len(self._held)

    def new_batch_id(self) -> str:
        """An id for a batch that this worker makes; no other worker ever makes the same."""
        return f"{self.info.worker}:{next(self._serial)}"

    # --- what beats say ---

    def set_pool_size(self, pool_size: int) -> None:
        """How many tasks can be in hand at once; said with the next beat."""
        self.info = msgspec.structs.replace(self.info, pool_size=pool_size)

    def set_own_class(self) -> None:
        """What works here is a class of the user, whose code may end the process; to be called before `start`."""
        self.info = msgspec.structs.replace(self.info, own_class=True)

    def set_state(self, state: str) -> None:
        """ "" for at work, "paused", "draining" or "stopping"; said at once. Draining is shown as drained when nothing is in hand."""
        with self._sender.changed:
            self._state = state
            self._sender.beat_soon()

    def frozen(self) -> bool:
        """True once after this process stood still (SIGSTOP, suspended machine, a blocked interpreter) for longer than the
        scheduler waits for a beat: what was not started has been given to others since."""
        return self._watch.take()

    # --- within ---

    def _say(self, item: StatusItem, over: Iterable[RunKey] = (), done: int = 0) -> None:
        packed = status_items.pack(item)
        with self._sender.changed:
            self._sender.wait_for_room(len(packed))
            self._held.drop(over)
            self._progress += done
            self._sender.append(packed)

    def _beat(self, leaving: bool) -> bytes:
        return codec.pack(
            self.info.beat(
                load=0 if leaving else len(self._held),
                progress=self._progress,
                holds={} if leaving else self._held.by_batch(),
                running=None if leaving else self._running,
                state=self.state,
                waiting=outages.waiting(),
                reasons=outages.reasons(),
                leaving=leaving,
            )
        )
