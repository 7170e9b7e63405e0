"""What a processor reports: on the heartbeat, or with results in batches for result workers.

Used by the processor's thread. Each batch is handed over on the heartbeat once it is on its queue.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from pyspider_lite import codec
from pyspider_lite.consumer import Publisher
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import ResultBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.models.report import Report
from pyspider_lite.processor.lane import Over

logger = logging.getLogger(__name__)

#: a batch of results (design, section 15)
BATCH_REPORTS, BATCH_BYTES = 100, 1024 * 1024


class ResultOutbox:
    """Sends reports, and collects those that carry results."""

    def __init__(self, heartbeat: Heartbeat, publisher: Publisher, give_up: Callable[[], bool]) -> None:
        self._heartbeat = heartbeat
        self._publisher = publisher
        self._give_up = give_up
        self._reports: list[Report] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._reports)

    def take(self, over: Over) -> None:
        """What a page reports, or a part of it."""
        if over.ended and (any(one.items for one in over.reports) or _had_items(over.page)):
            self.add(over.reports, over.size)
            return
        for one in over.reports:
            self._heartbeat.report(one)

    def add(self, reports: Sequence[Report], size: int) -> None:
        """All parts of one report; ``size`` is what they take, in bytes."""
        if self._size + size > BATCH_BYTES:
            # so that parts that belong together travel together, as far as one message can hold them
            self.flush()
        self._reports += reports
        self._size += size
        if len(self._reports) >= BATCH_REPORTS or self._size >= BATCH_BYTES:
            self.flush()

    def flush(self) -> None:
        """Send what is there. Waits for room on the queue, which slows the whole crawl to what can be stored."""
        reports, self._reports, self._size = self._reports, [], 0
        if reports:
            self._send(reports)

    def _send(self, reports: list[Report]) -> None:
        batch = self._heartbeat.new_batch_id()
        try:
            body = codec.encode(ResultBatch(batch=batch, reports=reports))
        except MessageTooLarge:
            # a part is far below the limit of a message (report.MAX_PIECE), so halving comes to an end
            middle = len(reports) // 2
            self._send(reports[:middle])
            self._send(reports[middle:])
            return
        runs = [report.key for report in reports if report.parts]
        sent = partial(self._heartbeat.hand_over, QueueName.RESULTS, batch, runs)
        while not self._publisher.put(body, sent, 1.0):
            if self._give_up():
                logger.warning("%d reports could not be sent in the drain time; their pages run again", len(reports))
                self._heartbeat.release(runs)
                return


def _had_items(page: Page) -> bool:
    """The last run stored something, which this one may have to replace by nothing; a page that did not change keeps it."""
    process = page.task.track.get("process")
    return isinstance(process, dict) and process.get("result") is not None and page.response.status_code != 304
