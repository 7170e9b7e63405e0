"""The processor: takes pages off the queues and has its child run their callbacks, one after the other. Built by bootstrap.

This side owns the queues and the claims; no script runs in it. Whatever a script does to its process (endless loop, exit, crash, all
the memory) ends that process and fails that task, and nothing else (demand UA39). A page that takes long is set aside with its
child: another child goes on with the pages of other projects, those of the same project wait for it.

Pages over which a processor may have died (`Dispatch.suspect`) are run when nothing else is in hand, for which the rest is given back, one
at a time, and only after the scheduler was told which one: if we die as well, that one alone is to blame.
"""

import logging
import time
from collections.abc import Sequence

from pyspider_lite import error_kinds
from pyspider_lite.consumer import Backoff, Consumer, Publisher
from pyspider_lite.consumer import Connect as Connect
from pyspider_lite.database.base import ProjectDB
from pyspider_lite.flight_recorder import Begun, FlightRecorder
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import PageBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.models.report import Report
from pyspider_lite.processor.aside import SLOW, Aside
from pyspider_lite.processor.child_process import ChildDied
from pyspider_lite.processor.inbox import Inbox
from pyspider_lite.processor.lane import LOOK_INTERVAL, Drained, Lane
from pyspider_lite.processor.lane import Options as Options
from pyspider_lite.processor.outbox import ResultOutbox
from pyspider_lite.processor.pipe import NeedScript, Script
from pyspider_lite.processor.returns import Returns
from pyspider_lite.processor.scripts import Scripts
from pyspider_lite.readings import Reading

logger = logging.getLogger(__name__)

#: seconds of silence after which collected results are sent
IDLE = 0.01
#: seconds in which `stop` is noticed
PATIENCE = 0.25


class Processor:
    """One batch of pages at a time, and the pages that are set aside. `run` works until `stop`."""

    def __init__(
        self,
        *,
        heartbeat: Heartbeat,
        projectdb: ProjectDB,
        connect_pages: Connect,
        connect_control: Connect,
        connect_results: Connect,
        options: Options | None = None,
        recorder: FlightRecorder | None = None,
    ) -> None:
        """``recorder``: where what runs is written for the case that nobody is left to tell it; it is closed at the end of `run`."""
        self._recorder = recorder
        self._options = options or Options()
        self._heartbeat = heartbeat
        self._stop_at: float | None = None
        self._inbox = Inbox()
        #: time.monotonic() of the loop's last turn; a long callback does not keep it from turning
        self.stepped = time.monotonic()
        self._scripts = Scripts(projectdb, self._stops)
        self._lane = self._new_lane()
        self._aside = Aside(self._new_lane, self._inbox)
        #: the scheduler was told that a suspect runs
        self._announced = False
        self._draining = False
        results = Publisher(connect_results, capacity=4, name=QueueName.RESULTS)
        givers = {
            QueueName.CONTROL: Publisher(connect_control, capacity=4, name=f"{QueueName.CONTROL} (giving back)"),
            QueueName.TO_PROCESSOR: Publisher(
                connect_pages, capacity=4, name=f"{QueueName.TO_PROCESSOR} (giving back)"
            ),
        }
        self._publishers = [results, *givers.values()]
        self._returns = Returns(heartbeat, self._inbox, givers)
        self._outbox = ResultOutbox(heartbeat, results, self._give_up)
        self._consumers = [
            self._consumer(connect_control, QueueName.CONTROL),
            self._consumer(connect_pages, QueueName.TO_PROCESSOR),
        ]

    def _new_lane(self) -> Lane:
        return Lane(self._options, self._bring_script)

    def _consumer(self, connect: Connect, queue: QueueName) -> Consumer[PageBatch]:
        def deliver(batch: PageBatch) -> None:
            runs = [page.task.key for page in batch.pages]
            self._heartbeat.take(queue, batch.batch, runs)
            if self._inbox.held:  # it came just before the consumer could hear of it
                self._heartbeat.release(runs)
            else:
                self._inbox.put(queue, batch.pages)

        def room(seconds: float) -> bool:
            return self._stop_at is None and self._inbox.wait_for_room(queue, seconds)

        return Consumer(connect, PageBatch, deliver, broken=self._heartbeat.broken, room=room, name=queue)

    # --- life ---

    def stop(self) -> None:
        """Finish the page in hand, give the others back, and return from `run`. From any thread or signal handler: takes no lock."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._options.drain_timeout

    def pause(self) -> None:
        """Take no more pages until `resume`; those in hand are processed."""
        self._order("paused")

    def drain(self) -> None:
        """As `pause`, and give back the pages that have not begun."""
        self._order("draining")

    def resume(self) -> None:
        """Take pages again."""
        self._order("")

    def _order(self, state: str) -> None:
        self._draining = state == "draining"
        self._inbox.hold(bool(state))
        self._heartbeat.set_state(state)
        if state:
            for consumer in self._consumers:
                consumer.wake()

    def run(self) -> None:
        """Work until `stop`; what goes wrong in here is logged and survived."""
        backoff = Backoff()
        # before it takes pages that it has no scripts for
        self._scripts.reach()
        for thread in (*self._publishers, *self._consumers):
            thread.start()
        try:
            while self._stop_at is None:
                try:
                    self._step()
                    backoff.reset()
                except Exception as error:
                    expected = isinstance(error, ChildDied)
                    logger.error("an error in the processor; going on: %s", error, exc_info=not expected)
                    time.sleep(backoff.next())
        finally:
            self._drain()

    def _step(self) -> None:
        self.stepped = time.monotonic()
        if self._heartbeat.frozen():
            # the scheduler took us for dead meanwhile, and gave to others what we had not started
            for pages in self._inbox.take_all().values():
                self._heartbeat.forget([page.task.key for page in pages])
        if self._draining:
            self._release_waiting()
        self._look_aside()
        self._lane.tidy()
        self._lane.start()
        if self._inbox.suspects:
            # the others are not to wait for them, nor to be lost with us
            self._returns.give_back(self._inbox.take_all(suspects=False))
        pages = self._inbox.get(IDLE if self._outbox or any(lane.may_wait for lane in self._aside.lanes) else PATIENCE)
        if not pages:
            self._outbox.flush()
            self._look_after_idle_child()
            return
        if not self._announce(pages[0]):
            self._heartbeat.release([page.task.key for page in pages])
            return
        self._lane.begin(pages)
        self._say_running()
        began = time.monotonic()
        try:
            self._run(self._lane)
        finally:
            self._inbox.used(bool(pages[0].task.control), time.monotonic() - began)
            self._say_running()
            self._inbox.resume()

    def _announce(self, page: Page) -> bool:
        """Have the scheduler know that a suspect runs now, or that it does no longer; False if we have to end."""
        suspect = page.task.suspect
        if not suspect and not self._announced:
            return True
        self._outbox.flush()
        if suspect:
            self._inbox.pause()
        # what another page left behind in it might end us, and this one would be blamed
        self._lane.child.kill()
        self._announced = suspect
        return self._heartbeat.announce(page.task.key if suspect else None, self._stops)

    def _look_after_idle_child(self) -> None:
        try:
            self._lane.child.receive(0.0)
        except ChildDied as error:
            logger.warning("the idle child is replaced: %s", error)

    def _drain(self) -> None:
        """Give back what was not started, finish what was, and send it, within what is left of the drain time."""
        self.stop()
        assert self._stop_at is not None
        for patience in (0.0, 2.0):  # all are told before one is waited for
            for consumer in self._consumers:
                consumer.stop(patience)
        self._inbox.park(frozenset())
        self._release_waiting()
        while any(lane.page for lane in self._aside.lanes) and not self._give_up():
            self._look_aside()
            time.sleep(IDLE)
        for lane in self._lanes():
            self._abandon(lane)
        self._outbox.flush()
        for lane in self._lanes():
            lane.child.close()
        if self._recorder is not None:
            self._recorder.close()
        for publisher in self._publishers:
            publisher.stop(max(1.0, self._stop_at - time.monotonic()))

    def _lanes(self) -> list[Lane]:
        return [self._lane, *self._aside.lanes, *self._aside.spare]

    def _release_waiting(self) -> None:
        for pages in self._inbox.take_all().values():
            self._heartbeat.release([page.task.key for page in pages])

    def readings(self) -> list[Reading]:
        """For /metrics."""
        size = sum(lane.child.resident() for lane in self._lanes() if lane.child.alive)
        aside = len(self._aside.lanes)
        return [
            Reading("child_resident_bytes", "Memory of the processes that run callbacks", {"": size}),
            Reading("set_aside", "Callbacks that take long, while others are run beside them", {"": aside}),
        ]

    def _stops(self) -> bool:
        self.stepped = time.monotonic()
        return self._stop_at is not None

    def _give_up(self) -> bool:
        self.stepped = time.monotonic()
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    # --- pages ---

    def _run(self, lane: Lane) -> None:
        """Until its pages are over or set aside, or we have to end."""
        while self._look(lane, IDLE if self._outbox else LOOK_INTERVAL) is None:
            if self._stop_at is not None:
                self._heartbeat.release([page.task.key for page in lane.take_back()])
                self._say_running()
            if self._give_up():
                return
            self._look_aside()
            if lane.runs_for >= SLOW:
                suspect = lane.page is not None and lane.page.task.suspect
                if self._aside.has_place and not (suspect or self._inbox.suspects):
                    self._lane = self._aside.put(lane)
                    return
                self._inbox.pause()
                self._inbox.put_back(lane.take_back())
                self._returns.give_back(self._inbox.take_all(suspects=suspect))
            elif lane.runs_for >= LOOK_INTERVAL:
                self._aside.prepare()

    def _look(self, lane: Lane, timeout: float) -> float | None:
        """Send what is over of its pages; once all are, the seconds that the last one took."""
        if lane.may_wait and not self._heartbeat.clear():
            # its many links would keep what others have to say waiting
            lane.wait()
            time.sleep(min(timeout, IDLE))
            return None
        try:
            over = lane.look(timeout)
        except Drained:
            self._abandon(lane)
            return 0.0
        for one in over:
            if one.ended:
                self._aside.took(one.page, one.took)
                _log(one.page, one.reports)
            self._outbox.take(one)
        if not over:
            self._outbox.flush()
            return None if lane.page else 0.0
        if lane.idle:
            # what came meanwhile may be more urgent
            self._inbox.put_back(lane.take_back())
        self._say_running()
        if lane.page:
            return None
        lane.tidy()
        return over[-1].took

    def _look_aside(self) -> None:
        for lane in self._aside.lanes[:]:
            page = lane.page
            if page is not None and (took := self._look(lane, 0.0)) is not None:
                goes_on = took >= SLOW and self._stop_at is None and not self._inbox.suspects
                self._aside.over(lane, page, goes_on)
                self._say_running()
        self._returns.give_back(self._aside.give_back())

    def _abandon(self, lane: Lane) -> None:
        begun = lane.runs
        for number, page in enumerate(lane.abandon()):
            logger.warning("%s: not over when the processor has to end; it is given back", page.task.url)
            self._heartbeat.release([page.task.key], cut_off=begun and not number)

    def _bring_script(self, question: NeedScript) -> Script:
        """The database may be away: meanwhile nothing runs, so nothing is late."""
        asked = time.monotonic()
        self._outbox.flush()
        answer = self._scripts.answer(question)
        if answer is None:
            raise Drained
        for lane in self._lanes():
            lane.put_off(time.monotonic() - asked)
        return answer

    def _say_running(self) -> None:
        # what takes long is the more likely cause if we die
        pages = [lane.page for lane in (*self._aside.lanes, self._lane) if lane.page]
        self._heartbeat.running(pages[0].task.key if pages else None)
        if self._recorder is not None:
            # whoever kills us while we end is not the script
            lanes = () if self._stop_at is not None else (*self._aside.lanes, self._lane)
            self._recorder.note(Begun([page.task.key for lane in lanes for page in lane.pages]))


def _log(page: Page, reports: Sequence[Report]) -> None:
    """One line a page (behaviour P31)."""
    if not logger.isEnabledFor(logging.INFO):
        return
    task, response = page.task, page.response
    track = reports[-1].track["process"]
    logger.info(
        "process %s:%s %s -> [%d] len:%d -> result:%s fol:%d msg:%d err:%r",
        task.project,
        task.taskid,
        task.url,
        response.status_code,
        len(response.content),
        track["result"],
        sum(len(one.follows) for one in reports),
        len(reports[-1].messages),
        error_kinds.said(track) or None,
    )
