"""The result worker: stores what callbacks returned, then tells the scheduler that their runs are over. Built by bootstrap.

A report goes on to the scheduler only after its results are in the resultdb, so a task is never done without them (demand UA36).
While the database is away the batch is kept and tried again for ever; the runs stay in hand and the crawl slows down.
Users subclass `ResultWorker` and override `on_result` (behaviour P41).
"""

import json
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Any

from pyspider_lite import codec, exit_codes
from pyspider_lite.consumer import Backoff, Consumer
from pyspider_lite.consumer import Connect as Connect
from pyspider_lite.database import names
from pyspider_lite.database.base import ResultDB
from pyspider_lite.errors import DatabaseError, DataError, text_of
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import ResultBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import RETRIED, Item, Report
from pyspider_lite.outages import Waiter
from pyspider_lite.readings import Reading
from pyspider_lite.result_worker.on_result_watch import OnResultWatch
from pyspider_lite.result_worker.rows import Work, onward, result_row, rows_as_they_are, task_dict

logger = logging.getLogger(__name__)

#: reports stored in one transaction, as far as so many wait
JOINED = 500
#: seconds from one transaction to the next, unless nothing came meanwhile
GATHER = 0.02
#: batches taken and not yet stored
_BATCHES = 10
#: seconds in hand after which the runs may have been given to others: less than a worker must be silent to be taken for dead
LATE = 3.0
#: seconds in which `stop` is noticed
_PATIENCE = 0.25


class ResultWorker:
    """Stores results in batches. ``inqueue`` is what opens processor2result; subclasses hand both arguments through."""

    def __init__(self, resultdb: ResultDB | None, inqueue: Connect | None = None) -> None:
        self.resultdb = resultdb
        self.inqueue = inqueue
        self._heartbeat: Heartbeat | None = None
        self._drain_timeout = 30.0
        self._stop_at: float | None = None
        self._held = False
        self._consumer: Consumer[ResultBatch] | None = None
        self._changed = threading.Condition()
        #: what was taken, and when (monotonic)
        self._batches: deque[tuple[float, list[Report]]] = deque()
        #: since when the oldest of what is being stored is here
        self._since = 0.0
        #: the report and the item that `on_result` is being called for
        self._current: tuple[Work, Item] | None = None
        self._waiter = Waiter()
        self._watch = OnResultWatch(f"{type(self).__module__}.{type(self).__qualname__}", self._end_overdue)
        #: time.monotonic() of the loop's last turn
        self.stepped = time.monotonic()
        self._taken = 0.0

    def attach(
        self,
        *,
        heartbeat: Heartbeat,
        connect_in: Connect | None = None,
        drain_timeout: float = 30.0,
        on_result_limit: float = 0.0,
    ) -> "ResultWorker":
        """Give it what pyspider's constructor had no place for; returns itself. ``on_result_limit``: seconds that an `on_result` of a
        user may take, 0 for any."""
        self._heartbeat = heartbeat
        if not _stores(self):
            heartbeat.set_own_class()
        self._drain_timeout = drain_timeout
        self._watch.limit = on_result_limit
        if connect_in is not None:
            self.inqueue = connect_in
        return self

    # --- what users override --------------------------------------------------------------------------------------------

    def on_result(self, task: dict[str, Any], result: Any) -> Any:
        """Called for each result; this one stores it. ``task`` has taskid, project, url, schedule, fetch and process.

        It is called again for the same result when something broke before the run was known to be over. An exception
        fails the task. A falsy result is not stored (behaviour P40).
        """
        if not result or self._current is None:
            return
        if not all(name in task for name in ("taskid", "project", "url")):
            logger.warning("result UNKNOW -> %.30r", result)
            return
        work, item = self._current
        items = [Item(item.item, codec.to_json(result))]
        work.rows.append(
            result_row(work.report, items, taskid=task["taskid"], project=task["project"], url=task["url"])
        )

    # --- life -----------------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Take nothing more, store what is in hand, return from `run`. From any thread or signal handler: takes no lock."""
        if self._stop_at is None:
            self._stop_at = time.monotonic() + self._drain_timeout

    def quit(self) -> None:
        """`stop`, as pyspider called it."""
        self.stop()

    def pause(self) -> None:
        """Take no more results until `resume`; those in hand are stored, and so are those that come before the broker has heard of it."""
        self._order("paused")

    def drain(self) -> None:
        """The same: results are not given back, their pages would have to be fetched again."""
        self._order("draining")

    def resume(self) -> None:
        """Take results again."""
        self._order("")

    def _order(self, state: str) -> None:
        assert self._heartbeat is not None, "attach() first"
        self._heartbeat.set_state(state)
        with self._changed:
            self._held = bool(state)
            self._changed.notify_all()
        if state and self._consumer is not None:
            self._consumer.wake()

    def readings(self) -> list[Reading]:
        """For /metrics."""
        waiting = sum(len(reports) for _, reports in list(self._batches))
        return [Reading("results_waiting", "Reports whose results are not stored yet", {"": waiting})]

    def run(self) -> None:
        """Work until `stop`; what goes wrong in here is logged and survived."""
        assert self.inqueue is not None and self._heartbeat is not None, "attach() first"
        consumer = Consumer(
            self.inqueue,
            ResultBatch,
            self._deliver,
            broken=self._heartbeat.broken,
            room=self._room,
            name=QueueName.RESULTS,
        )
        self._reach()
        if not _stores(self):
            self._watch.start()
        self._consumer = consumer
        consumer.start()
        try:
            while self._stop_at is None:
                if self._heartbeat.frozen():
                    # what was taken before is stored all the same: nobody else can, and storing twice does no harm
                    logger.warning("the results in hand may be stored a second time by others")
                self.step(_PATIENCE)
        finally:
            self.stop()
            consumer.stop(2.0)
            while self.step(0.0):
                pass
            self._watch.stop()

    def _reach(self) -> None:
        """Wait for the database before taking results for it. A subclass may have another place for them."""
        if self.resultdb is None or not _stores(self):
            return
        backoff = Backoff()
        while self._stop_at is None:
            self.stepped = time.monotonic()
            try:
                self.resultdb.projects()
            except DatabaseError as error:
                self._waiter.away(error)
                until = time.monotonic() + backoff.next()
                while self._stop_at is None and time.monotonic() < until:
                    time.sleep(_PATIENCE)
            else:
                self._waiter.back()
                return

    def step(self, timeout: float) -> int:
        """Store what waits, at most so many reports that they fit a transaction; returns how many there were."""
        self.stepped = time.monotonic()
        taken = self._take(timeout)
        for reports in self._apart(taken):
            try:
                self._process(reports)
            except Exception as error:
                logger.exception("an error in the result worker; %d tasks fail", len(reports))
                for report in reports:
                    self._forward(Work(report, error=f"result worker: {type(error).__name__}: {text_of(error)}"))
        return len(taken)

    def _apart(self, reports: list[Report]) -> list[list[Report]]:
        """What a worker may have died over comes last and alone, when all else is on its way to the scheduler."""
        if _stores(self) or not any(report.suspect for report in reports):
            return [reports] if reports else []
        rest = [report for report in reports if not report.suspect]
        return [rest, *([report] for report in reports if report.suspect)]

    def _deliver(self, batch: ResultBatch) -> None:
        assert self._heartbeat is not None
        # parts but the last are nobody's: the run is in hand where its last part is
        runs = [report.key for report in batch.reports if report.parts]
        self._heartbeat.take(QueueName.RESULTS, batch.batch, runs)
        with self._changed:
            self._batches.append((time.monotonic(), batch.reports))
            self._changed.notify_all()

    def _room(self, seconds: float) -> bool:
        with self._changed:
            return self._stop_at is None and self._changed.wait_for(self._has_room, seconds)

    def _has_room(self) -> bool:
        return not self._held and len(self._batches) < _BATCHES

    def _take(self, timeout: float) -> list[Report]:
        with self._changed:
            if self._changed.wait_for(lambda: self._batches, timeout):
                self._changed.wait_for(lambda: not self._has_room(), self._taken + GATHER - time.monotonic())
            self._taken = self._since = time.monotonic()
            reports: list[Report] = []
            while self._batches and (not reports or len(reports) + len(self._batches[0][1]) <= JOINED):
                since, more = self._batches.popleft()
                self._since = min(self._since, since)
                reports += more
            self._changed.notify_all()
            return reports

    # --- one batch ------------------------------------------------------------------------------------------------------

    def _process(self, reports: Sequence[Report]) -> None:
        works = [Work(report, rows=[]) for report in reports]
        if not self._prepare(works) or not self._store([work for work in works if work.rows and work.error is None]):
            assert self._heartbeat is not None
            self._heartbeat.release([report.key for report in reports if report.parts])
            return
        for work in works:
            self._forward(work)

    def _prepare(self, works: Sequence[Work]) -> bool:
        """The rows of all; False if the drain time is over before."""
        as_they_are = _stores(self)
        for work in works:
            if not names.is_possible(work.report.project):
                work.error = "no project can have the name in this message"
            elif as_they_are:
                work.rows = rows_as_they_are(work.report)
            elif not work.report.suspect:
                self._ask_subclass(work)
            elif not self._ask_about_suspect(work):
                return False
        return True

    def _ask_about_suspect(self, work: Work) -> bool:
        """A worker may have died over it: if this one does, the scheduler knows by then that it was over this report and no other."""
        assert self._heartbeat is not None
        if not self._heartbeat.announce(work.report.key, self._is_drained):
            return False
        self._ask_subclass(work)
        return self._heartbeat.announce(None, self._is_drained)

    def _is_drained(self) -> bool:
        self.stepped = time.monotonic()
        return self._stop_at is not None and self.stepped >= self._stop_at

    def _ask_subclass(self, work: Work) -> None:
        """Call the user's on_result for each item; what it stores by calling ours is collected for the transaction."""
        report = work.report
        for item in report.items:
            self.stepped = time.monotonic()
            self._current = (work, item)
            self._watch.begin(work)
            try:
                self._call_on_result(report, item)
            except BaseException as error:  # sys.exit(), too: only this task fails
                logger.exception("%s:%s: on_result failed", report.project, report.taskid)
                work.error = f"on_result: {type(error).__name__}: {text_of(error)}"
                return
            finally:
                self._watch.end()
                self._current = None

    def _call_on_result(self, report: Report, item: Item) -> None:
        worker = os.getpid()
        try:
            self.on_result(task_dict(report), codec.from_json(item.result))
        finally:
            if os.getpid() != worker:
                os._exit(0)  # a process that it forked, which is no second result worker

    def _end_overdue(self, work: Work) -> None:
        """The call for this has not returned in time, and nothing but the end of the process ends it. With the last beat all else that is
        in hand is given back."""
        assert self._heartbeat is not None
        self.stop()
        self._forward(work)
        self._heartbeat.stop(timeout=5.0)
        os._exit(exit_codes.OVERDUE)

    def _store(self, works: Sequence[Work]) -> bool:
        """Store all that can be stored, waiting for the database as long as it takes; False if the drain time is over before."""
        rows = [row for work in works for row in work.rows]
        if not rows:
            return True
        assert self.resultdb is not None
        backoff = Backoff()
        while True:
            self.stepped = time.monotonic()
            try:
                self.resultdb.store(rows, late=time.monotonic() - self._since > LATE)
                self._waiter.back()
                return True
            except DataError as error:
                self._waiter.back()
                return self._divide(works, error)
            except DatabaseError as error:
                self._waiter.away(error)
            except Exception as error:  # of a driver, on one value
                return self._divide(works, error)
            if not self._sleep(backoff.next()):
                return False

    def _divide(self, works: Sequence[Work], error: Exception) -> bool:
        """Find the one that cannot be stored; only that task fails."""
        if len(works) == 1:
            report = works[0].report
            works[0].error = f"result could not be stored: {error}"
            logger.error("%s:%s: result could not be stored: %s", report.project, report.taskid, error)
            return True
        middle = len(works) // 2
        first = self._store(works[:middle])
        return self._store(works[middle:]) and first

    def _sleep(self, seconds: float) -> bool:
        """False when the drain time is over."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            if self._is_drained():
                return False
            time.sleep(min(_PATIENCE, seconds))
        return True

    def _forward(self, work: Work) -> None:
        """The report without its results goes on; with an error it ends its run as failed, and the results are kept aside."""
        assert self._heartbeat is not None
        report = work.report
        if work.error is not None and report.items:
            self._heartbeat.unstorable(report, work.error)
        if report.part == RETRIED:
            return
        self._heartbeat.report(onward(work))


class OneResultWorker(ResultWorker):
    """Prints results instead of storing them, one JSON object a line (behaviour P42, C95)."""

    def on_result(self, task: dict[str, Any], result: Any) -> Any:
        """One line on stdout."""
        line = {name: task.get(name) for name in ("taskid", "project", "url")}
        print(json.dumps({**line, "result": result, "updatetime": time.time()}), flush=True)


def _stores(worker: ResultWorker) -> bool:
    """It stores results as they are: no subclass wants to see them."""
    return type(worker).on_result is ResultWorker.on_result
