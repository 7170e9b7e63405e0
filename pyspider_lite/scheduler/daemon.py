"""The scheduler as a process: waits to lead, then runs `Scheduler.step` with the threads that feed it, until it is stopped or
another scheduler leads. Started by `bootstrap`."""

import functools
import logging
import threading
import time
from collections.abc import Callable
from secrets import token_hex
from typing import Any

from pyspider_lite import flight_recorder, outages
from pyspider_lite.consumer import Backoff, Consumer
from pyspider_lite.consumer import Connect as ConnectOne
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import DatabaseError, LostLeadership, QueueError
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.worker import Alone, Beat, OrderKind
from pyspider_lite.orders import OrderWatch
from pyspider_lite.readings import Reading
from pyspider_lite.scheduler import numbers, queues
from pyspider_lite.scheduler.database_clock import DatabaseClock
from pyspider_lite.scheduler.election import Address
from pyspider_lite.scheduler.hearing import Hearing
from pyspider_lite.scheduler.inbox import CAPACITY, Heard, Inbox
from pyspider_lite.scheduler.leader import Leadership
from pyspider_lite.scheduler.presence import Presence
from pyspider_lite.scheduler.queues import Connect, DepthWatch, Outlet
from pyspider_lite.scheduler.roster import Roster
from pyspider_lite.scheduler.scheduler import MAX_BACKLOG, Options, Scheduler

logger = logging.getLogger("scheduler")

#: seconds after a takeover in which the claims of workers are heard before anything is given out
ADOPT_FOR = 2.5
#: seconds in which `SchedulerDaemon.stop` is noticed
_STOP_NOTICED = 0.25
#: seconds between two lines in the log on what was done (behaviour S71)
_SUMMARY_EVERY = 60.0


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
        info: WorkerInfo | None = None,
        orders: ConnectOne | None = None,
        coordination: Address | None = None,
        records: str = "",
    ) -> None:
        """``records``: the folder of the `flight_recorder` of this machine's processors, "" if they have none."""
        self._records = records
        self._taskdb = taskdb
        self._projectdb = projectdb
        self._resultdb = resultdb
        self._connect = connect
        self._options = options or Options()
        self._rpc = rpc
        #: called when all projects are finished (`one`)
        self._on_idle = on_idle
        self._scheduler_cls = scheduler_cls
        self.info = info or WorkerInfo.make(Role.SCHEDULER, 0)
        self._orders = orders
        self._coordination = coordination
        self._roster: Roster | None = None
        self._load = 0
        #: what all else waits for, as the loop saw it last
        self._alone: Alone | None = None
        self._stopping = self._holding = False
        self._clock = DatabaseClock(taskdb)
        self._waiter = outages.Waiter()
        self._leadership: Leadership | None = None
        #: time.monotonic() of the loop's last turn
        self.stepped = time.monotonic()
        #: of the scheduler while this one leads
        self.inbox: Inbox | None = None

    def stop(self) -> None:
        """End after the step that runs now, within a second. Safe in a signal handler: takes no lock."""
        self._stopping = True

    def hold(self) -> None:
        """Give out nothing more, and go on writing down what comes back: those who would take it are about to stop. From any thread."""
        self._holding = True
        if (inbox := self.inbox) is not None:
            inbox.command(lambda scheduler: scheduler.hold())

    def readings(self) -> list[Reading]:
        """For /metrics."""
        return numbers.ask(self.inbox)

    def describe(self) -> dict[str, Any]:
        """For /readyz: whether it leads, and who does otherwise."""
        if self.inbox is not None:
            return {"leading": True}
        leader = self._leadership.leader if self._leadership is not None else None
        more = {"leader": leader.holder, "leader_rpc": leader.rpc} if leader is not None else {}
        return {"leading": False, **more}

    def run(self) -> None:
        """Until `stop`; survives losing the lead."""
        logger.info("scheduler starting...")
        roster = self._roster = Roster(self._taskdb.copy(), self._beat, lambda: self.inbox is not None)
        roster.start()
        # it cannot pause: that is what the projects and the fetchers are for
        orders = OrderWatch(self._orders, {OrderKind.STOP: self.stop}) if self._orders is not None else None
        if orders is not None:
            orders.start()
        while not self._stopping:
            try:
                self._stand_by()
            except DatabaseError as error:
                self._waiter.away(error)
                self._sleep(1.0)
            except Exception:
                logger.exception("the scheduler begins anew after an error")
                self._sleep(1.0)
        if orders is not None:
            orders.stop()
        roster.stop()
        logger.info("scheduler exiting...")

    def _beat(self) -> Beat:
        """What the list of workers says of this scheduler."""
        state = "standing by" if self.inbox is None else "leading"
        return self.info.beat(
            load=self._load,
            rpc=self._rpc(),
            state=state,
            waiting=outages.waiting(),
            reasons=outages.reasons(),
            alone=self._alone,
        )

    def _stand_by(self) -> None:
        lost = threading.Event()
        holder = f"{self.info.worker}:{token_hex(4)}"
        leadership = self._leadership = Leadership(self._taskdb.copy(), holder, self._rpc, lost.set, self._coordination)
        leadership.start()
        said = False
        try:
            while not self._stopping and leadership.is_alive():
                self.stepped = time.monotonic()
                epoch = leadership.wait(0.2)
                if epoch is not None:
                    self._lead(epoch, lost, leadership)
                    return
                if leadership.leader is not None:
                    # so the database answers, whatever ended the lead before
                    self._waiter.back()
                    if not said:
                        logger.info("another scheduler leads, standing by")
                        said = True
        finally:
            leadership.stop()

    def _lead(self, epoch: int, lost: threading.Event, leadership: Leadership) -> None:
        logger.info("leading, epoch %d", epoch)
        assert self._roster is not None
        inbox = self.inbox = Inbox()
        self._roster.changed()
        tasks_out = Outlet(self._connect, QueueName.TO_FETCHER, inbox, leadership)
        pages_out = Outlet(self._connect, QueueName.CONTROL, inbox, leadership)
        watch = DepthWatch(self._connect, inbox)
        consumers: tuple[Consumer[StatusBatch], Consumer[NewTaskBatch]] | tuple[()] = ()
        scheduler: Scheduler | None = None
        try:
            first = leadership.first and not self._has_workers()
            self._purge(first, lost)
            scheduler = self._make_scheduler(epoch, first, tasks_out, pages_out)
            consumers = queues.consumers(
                self._connect,
                inbox,
                leadership,
                full=functools.partial(_is_full, scheduler),
                idle=functools.partial(_is_idle, scheduler),
                overhear=self._roster.hear,
            )
            for thread in (*consumers, watch):
                thread.start()
            self._clock.went_back = False
            self._loop(scheduler, lost, inbox, consumers[0], watch, leadership)
        except LostLeadership as error:
            logger.warning("epoch %d ends: %s", epoch, error)
        finally:
            self.inbox = None
            self._load, self._alone = 0, None
            self._roster.changed()
            # all are told before one is waited for
            watch.stop()
            for seconds in (0.0, 2.0):
                for consumer in consumers:
                    consumer.stop(seconds)
            for out in (tasks_out.publisher, pages_out.publisher):
                # what its queue has no room for now is nobody's, and given out by whoever leads next
                out.stop(0.0)
            if scheduler is not None:
                scheduler.end()

    def _make_scheduler(self, epoch: int, first: bool, tasks_out: Outlet, pages_out: Outlet) -> Scheduler:
        scheduler = self._scheduler_cls(
            taskdb=self._taskdb,
            projectdb=self._projectdb,
            resultdb=self._resultdb,
            epoch=epoch,
            tasks_out=tasks_out,
            pages_out=pages_out,
            now=self._clock.now(),
            options=self._options,
            adopt_for=0.0 if first else ADOPT_FOR,
        )
        self._waiter.back()
        forget = functools.partial(flight_recorder.forget, self._records)
        scheduler.deaths.found(flight_recorder.left_behind(self._records) if self._records else {}, forget)
        if self._holding:
            scheduler.hold()
        return scheduler

    def _has_workers(self) -> bool:
        """A cluster is at work, even if its leader row was made anew."""
        return any(row.beat.role != Role.SCHEDULER for row in self._taskdb.workers())

    def _purge(self, first: bool, lost: threading.Event) -> None:
        """What the leader before us gave out and nobody took is given out by us (design, section 5): a broker that is away is waited
        for, since with it that would come back, too."""
        names = [] if first else [QueueName.TO_FETCHER, QueueName.CONTROL]
        backoff = Backoff()
        while names and not self._stopping and not lost.is_set():
            self.stepped = time.monotonic()
            queue = self._connect(names[-1], False)
            try:
                queue.purge()
            except QueueError as error:
                self._waiter.away(error, queue.shown)
                self._sleep(backoff.next())
            else:
                names.pop()
            finally:
                queue.close()

    def _loop(
        self,
        scheduler: Scheduler,
        lost: threading.Event,
        inbox: Inbox,
        status: Consumer[StatusBatch],
        watch: DepthWatch,
        leadership: Leadership,
    ) -> None:
        hearing = Hearing()
        wake = 0.0
        asked = 0.0
        summed = time.monotonic()
        presence = Presence()
        while not self._stopping and not lost.is_set() and not self._clock.went_back:
            self.stepped = time.monotonic()
            due = wake - self._clock.now()
            # while nothing is in flight, no step is taken for what idle workers say
            heard = inbox.collect(max(0.0, min(due, _STOP_NOTICED)), news=due > _STOP_NOTICED and _is_idle(scheduler))
            deaf = hearing.look(time.monotonic(), status)
            if hearing.came_back:
                # workers come back some seconds after us
                scheduler.leases.fresh_term()
            if heard.nothing and self._clock.now() < wake:
                continue
            # everything that was said is heard: nothing waits here, and the consumer found its queue empty just now
            heard.drained = len(heard.status) + len(heard.new) < CAPACITY and not deaf and not leadership.overdue
            wake = self._step(scheduler, heard)
            clock = scheduler.leases.clock
            self._load, self._alone = len(scheduler.leases), scheduler.alone
            if self.stepped - summed >= _SUMMARY_EVERY:
                summed = self.stepped
                if line := numbers.summary(scheduler.counters, scheduler.now):
                    logger.info(line)
            presence.look(clock, scheduler.leases)
            for worker in scheduler.leases.take_buried() if self._records else ():
                flight_recorder.forget(self._records, worker)
            if len(scheduler.leases) and clock - asked >= 1.0:
                asked = clock
                watch.ask(clock)
            if self._on_idle is not None and scheduler.idle:
                self._on_idle(scheduler)
        if self._clock.went_back:
            # what was put off until some time would wait too long
            logger.warning("the database's clock went back: beginning anew")

    def _step(self, scheduler: Scheduler, heard: Heard) -> float:
        now = self._clock.now()
        try:
            return scheduler.step(now, heard)
        except LostLeadership:
            raise
        except Exception:
            logger.exception("an error in the scheduler's loop; going on")
            return now + 0.5

    def _sleep(self, seconds: float) -> None:
        """Notices `stop`."""
        until = time.monotonic() + seconds
        while not self._stopping and time.monotonic() < until:
            time.sleep(min(seconds, _STOP_NOTICED))


def _is_full(scheduler: Scheduler) -> bool:
    return scheduler.backlog >= MAX_BACKLOG


def _is_idle(scheduler: Scheduler) -> bool:
    """Nothing is in flight, and whatever was is known."""
    return not (len(scheduler.leases) or scheduler.leases.adopting)
