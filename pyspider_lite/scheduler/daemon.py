"""The scheduler as a process: waits to lead, then runs `Scheduler.step` with the threads that feed it, until it is stopped or
another scheduler leads. Started by `bootstrap`."""

import logging
import os
import socket
import threading
import time
from collections.abc import Callable
from secrets import token_hex

from pyspider_lite.consumer import Consumer, Publisher
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import LostLeadership, QueueError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models import NewTaskBatch, QueueName, StatusBatch
from pyspider_lite.scheduler.inbox import Depths, Heard, Inbox
from pyspider_lite.scheduler.leader import Leadership
from pyspider_lite.scheduler.scheduler import MAX_BACKLOG, Options, Scheduler

logger = logging.getLogger("scheduler")

#: connects to a queue; the flag asks for late acknowledgement
Connect = Callable[[QueueName, bool], MessageQueue]

#: batches that may wait in a publisher
_OUT_CAPACITY = 8
#: seconds after a takeover in which the claims of workers are heard before anything is given out
ADOPT_FOR = 2.5
#: work queues whose length is watched, for batches that vanished from them
_WATCHED = (QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.CONTROL, QueueName.RESULTS)
#: seconds in which `SchedulerDaemon.stop` is noticed
_STOP_NOTICED = 0.25
#: seconds between two looks at the database's clock
_CLOCK_EVERY = 60.0


class _Out:
    """A publisher as the dispatcher sees it."""

    def __init__(self, connect: Connect, queue: QueueName, inbox: Inbox) -> None:
        self._inbox = inbox
        self.publisher = Publisher(lambda: connect(queue, False), capacity=_OUT_CAPACITY, name=queue)
        self.publisher.start()

    def room(self) -> int:
        return _OUT_CAPACITY - self.publisher.pending

    def put(self, batch: str, body: bytes) -> None:
        # there is room: the dispatcher asked, and nobody else puts
        self.publisher.put(body, sent=lambda: self._inbox.sent(batch), timeout=60.0)


class _DepthWatch(threading.Thread):
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
        self._asked = clock
        self._wake.set()

    def stop(self) -> None:
        self._stopping = True
        self._wake.set()

    def run(self) -> None:
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


class SchedulerDaemon:
    """Leads when it may, schedules while it leads."""

    def __init__(
        self,
        *,
        taskdb: TaskDB,
        projectdb: ProjectDB,
        resultdb: ResultDB,
        connect: Connect,
        options: Options | None = None,
        rpc: Callable[[], str] = str,
        on_idle: Callable[[Scheduler], None] | None = None,
        scheduler_cls: type[Scheduler] = Scheduler,
    ) -> None:
        self._taskdb = taskdb
        self._projectdb = projectdb
        self._resultdb = resultdb
        self._connect = connect
        self._options = options or Options()
        self._rpc = rpc
        #: called when all projects are finished (`one`)
        self._on_idle = on_idle
        self._scheduler_cls = scheduler_cls
        self._stopping = False
        self._offset = 0.0
        self._clock_looked = float("-inf")
        #: of the scheduler while this one leads
        self.inbox: Inbox | None = None

    def stop(self) -> None:
        """End after the step that runs now, within a second. Safe in a signal handler: takes no lock."""
        self._stopping = True

    def run(self) -> None:
        """Until `stop`; survives losing the lead."""
        logger.info("scheduler starting...")
        while not self._stopping:
            try:
                self._stand_by()
            except Exception:
                logger.exception("the scheduler begins anew after an error")
                time.sleep(1.0)
        logger.info("scheduler exiting...")

    def _stand_by(self) -> None:
        lost = threading.Event()
        holder = f"{socket.gethostname()}:{os.getpid()}:{token_hex(4)}"
        leadership = Leadership(self._taskdb.copy(), holder, self._rpc, lost.set)
        leadership.start()
        said = False
        try:
            while not self._stopping and leadership.is_alive():
                epoch = leadership.wait(0.2)
                if epoch is not None:
                    self._lead(epoch, lost)
                    return
                if not said:
                    logger.info("another scheduler leads, standing by")
                    said = True
        finally:
            leadership.stop()

    def _lead(self, epoch: int, lost: threading.Event) -> None:
        logger.info("leading, epoch %d", epoch)
        inbox = self.inbox = Inbox()
        tasks_out = _Out(self._connect, QueueName.TO_FETCHER, inbox)
        pages_out = _Out(self._connect, QueueName.CONTROL, inbox)
        watch = _DepthWatch(self._connect, inbox)
        consumers: tuple[Consumer[StatusBatch], Consumer[NewTaskBatch]] | tuple[()] = ()
        try:
            self._purge(epoch)
            scheduler = self._scheduler_cls(
                taskdb=self._taskdb,
                projectdb=self._projectdb,
                resultdb=self._resultdb,
                epoch=epoch,
                tasks_out=tasks_out,
                pages_out=pages_out,
                now=self._now(),
                options=self._options,
                adopt_for=ADOPT_FOR if epoch > 1 else 0.0,
            )
            consumers = self._consumers(scheduler, inbox)
            for thread in (*consumers, watch):
                thread.start()
            self._loop(scheduler, lost, inbox, consumers[0], watch)
        except LostLeadership as error:
            logger.warning("epoch %d ends: %s", epoch, error)
        finally:
            self.inbox = None
            # all are told before one is waited for
            watch.stop()
            for seconds in (0.0, 2.0):
                for consumer in consumers:
                    consumer.stop(seconds)
            tasks_out.publisher.stop(1.0)
            pages_out.publisher.stop(1.0)

    def _purge(self, epoch: int) -> None:
        """What the leader before us gave out and nobody took is given out by us (design, section 5)."""
        if epoch == 1:
            return
        for name in (QueueName.TO_FETCHER, QueueName.CONTROL):
            queue = None
            try:
                queue = self._connect(name, False)
                queue.purge()
            except QueueError as error:
                logger.debug("%s could not be purged: %s", name, error)
            finally:
                if queue is not None:
                    queue.close()

    def _consumers(self, scheduler: Scheduler, inbox: Inbox) -> tuple[Consumer[StatusBatch], Consumer[NewTaskBatch]]:
        def room(seconds: float) -> bool:
            if scheduler.backlog >= MAX_BACKLOG:
                time.sleep(min(seconds, 0.05))
                return False
            return inbox.room(seconds)

        def broken(queue: str, reason: str, body: bytes) -> None:
            inbox.command(lambda target: target.keep_aside(queue, reason, body))

        return (
            Consumer(
                lambda: self._connect(QueueName.STATUS, False),
                StatusBatch,
                inbox.status,
                broken=broken,
                room=room,
                name=QueueName.STATUS,
            ),
            Consumer(
                lambda: self._connect(QueueName.NEW_TASKS, True),
                NewTaskBatch,
                inbox.new_tasks,
                broken=broken,
                room=room,
                name=QueueName.NEW_TASKS,
                ack=True,
            ),
        )

    def _loop(
        self,
        scheduler: Scheduler,
        lost: threading.Event,
        inbox: Inbox,
        status: Consumer[StatusBatch],
        watch: _DepthWatch,
    ) -> None:
        wake = 0.0
        asked = 0.0
        while not self._stopping and not lost.is_set():
            heard = inbox.collect(max(0.0, min(wake - self._now(), _STOP_NOTICED)))
            if heard.nothing and self._now() < wake:
                continue
            # everything that was said is heard: nothing waits here, and the consumer found its queue empty just now
            heard.drained = len(heard.status) + len(heard.new) < 64 and status.waiting_since is None
            wake = self._step(scheduler, heard)
            clock = scheduler.leases.clock
            if len(scheduler.leases) and clock - asked >= 1.0:
                asked = clock
                watch.ask(clock)
            if self._on_idle is not None and scheduler.idle:
                self._on_idle(scheduler)

    def _step(self, scheduler: Scheduler, heard: Heard) -> float:
        now = self._now()
        try:
            return scheduler.step(now, heard)
        except LostLeadership:
            raise
        except Exception:
            logger.exception("an error in the scheduler's loop; going on")
            return now + 0.5

    def _now(self) -> float:
        """The database's time: what is due is written in it."""
        clock = time.monotonic()
        if clock - self._clock_looked > _CLOCK_EVERY:
            self._offset = self._taskdb.time() - time.time()
            if abs(self._offset) < 0.05:
                self._offset = 0.0
            self._clock_looked = clock
        return time.time() + self._offset
