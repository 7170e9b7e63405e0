"""The one place where everything that happens to the scheduler arrives: bounded for what the queues bring, so that a scheduler
that cannot keep up slows its queues and not its memory. The loop sleeps on it until the next due time."""

import threading
import time
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from pyspider_lite.models.batch import NewTaskBatch, StatusBatch, StatusItem
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat

#: messages that wait at most, and about how many tasks in them: a message may bring 5,000, and all that came is committed before anything
#: is given out (measured with 100,000 tasks in 20 messages on a busy machine: 10 s without a page)
CAPACITY, MAX_TASKS = 64, 5_000
#: seconds from one step to the next, unless nothing happened meanwhile: a step and its transaction cost as much as ten reports
GATHER = 0.02


#: workers that are remembered as being at work
_MOST = 10_000
#: a part of a report that is not over counts as so many: it comes from a callback that enters thousands of links, which can wait
_PART = MAX_TASKS


class Depths(Struct, frozen=True):
    """How many messages waited in each queue, for a question asked at ``asked``."""

    asked: float
    sizes: dict[str, int]


class Heard(Struct):
    """Everything that came in since the last step."""

    status: list[StatusBatch] = field(default_factory=list)
    #: batches of newtask_queue, each with the call that acknowledges it
    new: list[tuple[NewTaskBatch, Callable[[], None]]] = field(default_factory=list)
    #: ids of batches that are on their queue now
    sent: list[str] = field(default_factory=list)
    commands: list[Callable[[Any], None]] = field(default_factory=list)
    depths: Depths | None = None
    #: nothing more waits, here or (as far as the consumer saw) in status_queue
    drained: bool = True

    @property
    def nothing(self) -> bool:
        """There is no reason for a step."""
        return not (self.status or self.new or self.sent or self.commands or self.depths)


def _tasks(item: StatusItem) -> int:
    if not isinstance(item, Report):
        return 0
    return len(item.follows) if item.parts else _PART


class Inbox:
    """Filled by the I/O threads, emptied by the loop."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._gave_out = threading.Event()
        self._heard = Heard()
        self._waiting = 0
        self._tasks = 0
        #: something came that the loop has to look at now
        self._news = self._woken = False
        self._collected = 0.0
        #: workers of which a beat came that said that they are at work
        self._at_work: set[str] = set()

    def room(self, seconds: float) -> bool:
        """Wait up to ``seconds`` for room; for consumers."""
        with self._changed:
            return self._changed.wait_for(lambda: self._waiting < CAPACITY and self._tasks < MAX_TASKS, seconds)

    def rest(self, idle: Callable[[], bool], seconds: float) -> bool:
        """If the scheduler is ``idle``, wait so long or until it gave something out; whether it was."""
        self._gave_out.clear()
        if not idle():
            return False
        self._gave_out.wait(seconds)
        return True

    def status(self, batch: StatusBatch) -> None:
        """A message of status_queue."""
        with self._changed:
            self._heard.status.append(batch)
            self._tasks += sum(map(_tasks, batch.items))
            # each is looked at
            news = list(map(self._is_news, batch.items))
            self._came(any(news))

    def _is_news(self, item: StatusItem) -> bool:
        """Not so a beat that says no more than that an idle worker is there still: a hundred workers send fifty a second."""
        if not isinstance(item, Beat):
            return True
        if item.state or item.leaving:
            self._at_work.discard(item.worker)
            return True
        came = item.worker not in self._at_work
        if came:
            if len(self._at_work) >= _MOST:
                self._at_work.clear()
            self._at_work.add(item.worker)
        return came or bool(item.holds)

    def new_tasks(self, batch: NewTaskBatch, ack: Callable[[], None]) -> None:
        """A message of newtask_queue."""
        with self._changed:
            self._heard.new.append((batch, ack))
            self._tasks += len(batch.tasks)
            self._came(True)

    def _came(self, news: bool) -> None:
        self._waiting += 1
        # who gathers needs not wake for each; it has to have looked before this is full, to know that it heard everything
        if ((news or self._waiting >= CAPACITY // 2) and not self._news) or self._full():
            self._news = True
            self._changed.notify_all()

    def sent(self, batch: str) -> None:
        """A publisher put a batch on its queue."""
        self._gave_out.set()
        with self._changed:
            self._heard.sent.append(batch)
            self._changed.notify_all()

    def depths(self, depths: Depths) -> None:
        """The queues were measured; no reason to wake up."""
        with self._changed:
            self._heard.depths = depths

    def command(self, command: Callable[[Any], None]) -> None:
        """Call ``command(scheduler)`` in the next step."""
        with self._changed:
            self._heard.commands.append(command)
            self._changed.notify_all()

    def wake(self) -> None:
        """Do not sleep on."""
        with self._changed:
            self._woken = True
            self._changed.notify_all()

    def collect(self, timeout: float, *, news: bool = False) -> Heard:
        """All that came in; waits up to ``timeout`` seconds for something, and for more of it if the last time was just now. Only if something
        of it is ``news``, where that is said: the beats of idle workers stay here until then."""
        due = time.monotonic() + timeout
        with self._changed:
            if self._changed.wait_for(self._something, timeout):
                self._changed.wait_for(self._full, min(self._collected + GATHER, due) - time.monotonic())
            elif news:
                return Heard()
            self._collected = time.monotonic()
            heard, self._heard = self._heard, Heard()
            self._waiting = self._tasks = 0
            self._news = self._woken = False
            self._changed.notify_all()
            return heard

    def _full(self) -> bool:
        return self._woken or self._waiting >= CAPACITY or self._tasks >= MAX_TASKS

    def _something(self) -> bool:
        return self._woken or self._news or bool(self._heard.sent or self._heard.commands)
