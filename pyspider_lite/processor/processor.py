"""The processor: takes pages off the queues and has its child run their callbacks, one at a time. Built by bootstrap.

This side owns the queues, the claims, the deadlines and the memory limit; no script runs in it. Whatever a script does to its
process (endless loop, exit, crash, all the memory) ends that process and fails that task, and nothing else (demand UA39).
"""

import logging
import time
from collections.abc import Sequence

from msgspec import Struct

from pyspider_lite.consumer import Backoff, Consumer, Publisher
from pyspider_lite.consumer import Connect as Connect
from pyspider_lite.database.base import ProjectDB
from pyspider_lite.heartbeat import Heartbeat
from pyspider_lite.models import Page, PageBatch, QueueName, Report
from pyspider_lite.processor import report
from pyspider_lite.processor.child_process import ChildDied, ChildOptions, ChildProcess
from pyspider_lite.processor.inbox import Inbox
from pyspider_lite.processor.outbox import ResultOutbox, give_back
from pyspider_lite.processor.pipe import Done, NeedScript, Run
from pyspider_lite.processor.scripts import Scripts
from pyspider_lite.readings import Reading

logger = logging.getLogger(__name__)

#: seconds between two looks at what the child occupies
LOOK_INTERVAL = 0.25
#: processes that scripts may have started and that still run
MAX_PROCESSES = 100
#: seconds that a page may run while others wait behind it
SLOW = 1.0
#: seconds of silence after which collected results are sent
IDLE = 0.01
#: seconds in which `stop` is noticed
PATIENCE = 0.25


class Options(Struct, frozen=True, kw_only=True):
    """Settings of a processor (design, section 15)."""

    #: seconds that a callback may run unless its task says otherwise; 0 for no limit
    process_time_limit: float = 30.0
    #: seconds from the exception inside the callback to the end of the child
    hard_after: float = 5.0
    #: bytes that the child may occupy; 0 for no limit
    memory_limit: int = 1 << 30
    #: characters kept of what a callback prints and logs
    log_limit: int = 64 * 1024
    #: seconds for the page in hand after `stop`
    drain_timeout: float = 30.0
    #: prints go into the task's log; False: to the real stdout, as in `one` (behaviour C95)
    capture_stdout: bool = True


class _Drained(Exception):
    """The time to drain is over."""


class Processor:
    """One child, one page at a time. `run` works until `stop`."""

    def __init__(
        self,
        *,
        heartbeat: Heartbeat,
        projectdb: ProjectDB,
        connect_pages: Connect,
        connect_control: Connect,
        connect_results: Connect,
        options: Options | None = None,
    ) -> None:
        self._options = options or Options()
        self._heartbeat = heartbeat
        self._stop_at: float | None = None
        self._inbox = Inbox()
        #: time.monotonic() of the loop's last turn; a long callback does not keep it from turning
        self.stepped = time.monotonic()
        self._scripts = Scripts(projectdb, self._stops)
        self._child = ChildProcess(
            ChildOptions(
                memory_limit=self._options.memory_limit,
                log_limit=self._options.log_limit,
                capture_stdout=self._options.capture_stdout,
                process_time_limit=self._options.process_time_limit,
            )
        )
        self._next_look = 0.0
        self._draining = False
        results = Publisher(connect_results, capacity=4, name=QueueName.RESULTS)
        self._givers = {
            QueueName.CONTROL: Publisher(connect_control, capacity=4, name=f"{QueueName.CONTROL} (giving back)"),
            QueueName.TO_PROCESSOR: Publisher(
                connect_pages, capacity=4, name=f"{QueueName.TO_PROCESSOR} (giving back)"
            ),
        }
        self._publishers = [results, *self._givers.values()]
        self._outbox = ResultOutbox(heartbeat, results, self._give_up)
        self._consumers = [
            self._consumer(connect_control, QueueName.CONTROL),
            self._consumer(connect_pages, QueueName.TO_PROCESSOR),
        ]

    def _consumer(self, connect: Connect, queue: QueueName) -> Consumer[PageBatch]:
        def deliver(batch: PageBatch) -> None:
            self._heartbeat.take(queue, batch.batch, [page.task.key for page in batch.pages])
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
        self._child.start()
        page = self._inbox.get(IDLE if self._outbox else PATIENCE)
        if page is None:
            self._outbox.flush()
            self._look_after_idle_child()
            return
        self._heartbeat.running(page.task.key)
        try:
            reports, size = self._execute(page)
        except _Drained:
            logger.warning("%s: not over when the processor has to end; it is given back", page.task.url)
            self._child.kill()
            self._heartbeat.release([page.task.key])
        else:
            self._send(page, reports, size)
        finally:
            self._heartbeat.running(None)
            self._inbox.resume()

    def _look_after_idle_child(self) -> None:
        try:
            self._child.receive(0.0)
        except ChildDied as error:
            logger.warning("the idle child is replaced: %s", error)

    def _drain(self) -> None:
        """Give back what was not started, send what is finished, within what is left of the drain time."""
        self.stop()
        assert self._stop_at is not None
        for patience in (0.0, 2.0):  # all are told before one is waited for
            for consumer in self._consumers:
                consumer.stop(patience)
        self._release_waiting()
        self._outbox.flush()
        self._child.close()
        for publisher in self._publishers:
            publisher.stop(max(1.0, self._stop_at - time.monotonic()))

    def _release_waiting(self) -> None:
        for pages in self._inbox.take_all().values():
            self._heartbeat.release([page.task.key for page in pages])

    def readings(self) -> list[Reading]:
        """For /metrics."""
        size = self._child.resident() if self._child.alive else 0
        return [Reading("child_resident_bytes", "Memory of the process that runs callbacks", {"": size})]

    def _stops(self) -> bool:
        self.stepped = time.monotonic()
        return self._stop_at is not None

    def _give_up(self) -> bool:
        self.stepped = time.monotonic()
        return self._stop_at is not None and time.monotonic() >= self._stop_at

    # --- one page ---

    def _execute(self, page: Page) -> tuple[list[Report], int]:
        """The parts of the report on the page, and their size."""
        started = time.monotonic()
        try:
            try:
                return self._await(page, started)
            except ChildDied as error:
                if not (error.unread or error.outside):
                    raise
                # it died while idle, or somebody killed it: the page gets a second child, but no third
                logger.warning("the child is replaced: %s", error)
                self._child.start()
                return self._await(page, started)
        except ChildDied as error:
            return self._failed(page, str(error), started)
        except _Drained:
            raise
        except Exception as error:
            # a page that upsets us must not come back for ever
            logger.exception("%s: an error in the processor", page.task.url)
            return self._kill(page, f"processor: {type(error).__name__}: {error}", started)

    def _await(self, page: Page, started: float) -> tuple[list[Report], int]:
        """Give the page to the child and watch it until it is done or has to be killed."""
        options = self._options
        limit = time_limit(page, options.process_time_limit)
        self._child.send(Run(page=page, limit=limit))
        allowed = limit + options.hard_after if limit else float("inf")
        deadline = started + allowed
        timeout = IDLE
        while True:
            answer = self._child.receive(timeout)
            if answer is not None:
                message, size = answer
                if isinstance(message, Done):
                    return message.reports, size
                asked = time.monotonic()
                self._bring_script(message)
                deadline += time.monotonic() - asked
            self._outbox.flush()
            now = time.monotonic()
            if now >= deadline:
                return self._kill(page, f"process killed: {limit:g} s limit", started)
            if passed := self._passed_limit(now):
                return self._kill(page, f"process killed: {passed}", started)
            if self._give_up():
                raise _Drained
            if now - started >= SLOW:
                self._give_back()
            timeout = max(0.001, min(LOOK_INTERVAL, deadline - now))

    def _bring_script(self, question: NeedScript) -> None:
        """The database may be away: meanwhile nothing runs, so nothing is late."""
        self._outbox.flush()
        answer = self._scripts.answer(question)
        if answer is None:
            raise _Drained
        self._child.send(answer)

    def _give_back(self) -> None:
        """Pages that wait behind a slow one go back to their queue, and no others are taken until it is over."""
        self._inbox.pause()
        for queue, pages in self._inbox.take_all().items():
            self._inbox.put(queue, give_back(self._heartbeat, self._givers[queue], queue, pages))

    def _passed_limit(self, now: float) -> str | None:
        """The limit that the child and what it started have passed. Looks four times a second, however short the pages are."""
        if now < self._next_look:
            return None
        self._next_look = now + LOOK_INTERVAL
        if 0 < self._options.memory_limit < self._child.resident():
            return f"{self._options.memory_limit >> 20} MiB memory limit"
        if self._child.processes() > MAX_PROCESSES:
            return f"limit of {MAX_PROCESSES} processes"
        return None

    def _kill(self, page: Page, reason: str, started: float) -> tuple[list[Report], int]:
        self._child.kill()
        return self._failed(page, reason, started)

    def _failed(self, page: Page, reason: str, started: float) -> tuple[list[Report], int]:
        return [report.failure(page, reason, reason, time.monotonic() - started)], 0

    def _send(self, page: Page, reports: Sequence[Report], size: int) -> None:
        _log(page, reports)
        if any(one.items for one in reports) or _had_items(page):
            self._outbox.add(reports, size)
        else:
            for one in reports:
                self._heartbeat.report(one)
        if self._child.alive and (passed := self._passed_limit(time.monotonic())):
            logger.warning("the child is replaced: it has passed the %s", passed)
            self._child.kill()


def _had_items(page: Page) -> bool:
    """The last run stored something, which this one may have to replace by nothing; a page that did not change keeps it."""
    process = page.task.track.get("process")
    return isinstance(process, dict) and process.get("result") is not None and page.response.status_code != 304


def time_limit(page: Page, default: float) -> float:
    """Seconds that the callback may run, 0 for no limit: the task's own limit, else the processor's (behaviour H25)."""
    value = page.task.process.get("process_time_limit")
    if value is None or isinstance(value, bool):
        return default
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return default


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
        track["exception"],
    )
