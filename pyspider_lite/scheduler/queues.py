"""What is between a leader and its queues, made by `daemon` for one lead: the outlets of its dispatcher, the consumers that fill its inbox,
and the thread that measures how long queues are."""

import logging
import threading
import time
from collections.abc import Callable

from pyspider_lite.consumer import Consumer, Publisher
from pyspider_lite.errors import QueueError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.scheduler.inbox import Depths, Inbox
from pyspider_lite.scheduler.leader import Leadership

logger = logging.getLogger("scheduler")

#: connects to a queue; the flag asks for late acknowledgement
Connect = Callable[[QueueName, bool], MessageQueue]

#: batches that may wait in a publisher
OUT_CAPACITY = 8
#: work queues whose length is watched, for batches that vanished from them
_WATCHED = (QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.CONTROL, QueueName.RESULTS)


#: seconds for which the beats of idle workers gather, and how many are taken at once then
_REST, _BEATS = 0.4, 32


class Outlet:
    """A publisher as the dispatcher sees it. Before each put it looks whether we lead still: what was ready when we were frozen, or cut
    off, is another's to give out by now."""

    def __init__(self, connect: Connect, queue: QueueName, inbox: Inbox, leadership: Leadership) -> None:
        self._inbox = inbox
        self.publisher = Publisher(
            lambda: connect(queue, False), capacity=OUT_CAPACITY, name=queue, may=lambda: not leadership.overdue
        )
        self.publisher.start()

    def room(self) -> int:
        """How many batches more may wait."""
        return OUT_CAPACITY - self.publisher.pending

    def put(self, batch: str, body: bytes) -> None:
        """The inbox hears of it once it is on the queue."""
        # there is room: the dispatcher asked, and nobody else puts
        self.publisher.put(body, sent=lambda: self._inbox.sent(batch), timeout=60.0)


class DepthWatch(threading.Thread):
    """Measures the queues on a connection of its own, when asked."""

    def __init__(self, connect: Connect, inbox: Inbox) -> None:
        super().__init__(name="queue-depths", daemon=True)
        self._connect = connect
        self._inbox = inbox
        self._queues: dict[QueueName, MessageQueue] = {}
        self._asked: float | None = None
        self._wake = threading.Event()
        self._stopping = False

    def ask(self, clock: float) -> None:
        """Measure them now, which is at ``clock`` of the leases; the inbox gets the answer."""
        self._asked = clock
        self._wake.set()

    def stop(self) -> None:
        """Without waiting for its end."""
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
        """Until `stop`."""
        while not self._stopping:
            self._wake.wait()
            self._wake.clear()
            asked, self._asked = self._asked, None
            if asked is not None:
                try:
                    self._inbox.depths(Depths(asked, {name: self._queue(name).qsize() for name in _WATCHED}))
                except QueueError as error:
                    logger.debug("queues could not be measured: %s", error)
                    self._close()
        self._close()

    def _queue(self, name: QueueName) -> MessageQueue:
        if name not in self._queues:
            self._queues[name] = self._connect(name, False)
        return self._queues[name]

    def _close(self) -> None:
        for queue in self._queues.values():
            queue.close()
        self._queues.clear()


def consumers(
    connect: Connect,
    inbox: Inbox,
    leadership: Leadership,
    *,
    full: Callable[[], bool],
    idle: Callable[[], bool],
    overhear: Callable[[StatusBatch], None],
) -> tuple[Consumer[StatusBatch], Consumer[NewTaskBatch]]:
    """They take nothing while the scheduler is ``full``, or another may lead by now. While it is ``idle`` workers have nothing to say but that
    they live: that may gather, since to wake up for each beat of a hundred workers would be all that the scheduler does. ``overhear`` is told
    all that workers say as well."""

    #: messages of the last get from status_queue
    came = 0

    def room(seconds: float) -> bool:
        # who may have been replaced takes nothing from the new leader
        if leadership.overdue or full():
            time.sleep(min(seconds, 0.05))
            return False
        return inbox.room(seconds)

    def room_for_status(seconds: float) -> int:
        nonlocal came
        # so many, and there may be more: no time for a rest
        quiet = inbox.rest(idle, _REST if came < _BEATS else 0.0)
        came = 0
        return room(seconds) and (_BEATS if quiet else 1)

    def status(batch: StatusBatch) -> None:
        nonlocal came
        came += 1
        overhear(batch)
        inbox.status(batch)

    def broken(queue: str, reason: str, body: bytes) -> None:
        inbox.command(lambda target: target.keep_aside(queue, reason, body))

    return (
        Consumer(
            lambda: connect(QueueName.STATUS, False),
            StatusBatch,
            status,
            broken=broken,
            room=room_for_status,
            name=QueueName.STATUS,
            watch=True,
        ),
        Consumer(
            lambda: connect(QueueName.NEW_TASKS, True),
            NewTaskBatch,
            inbox.new_tasks,
            broken=broken,
            room=room,
            name=QueueName.NEW_TASKS,
            ack=True,
            watch=True,
        ),
    )
