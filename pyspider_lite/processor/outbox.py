"""What leaves a processor for other queues than status_queue: results in batches, and pages that are given back.

Used by the processor's thread. Each batch is handed over on the heartbeat once it is on its queue.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial

from pyspider_lite import codec
from pyspider_lite.consumer import Publisher
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import PageBatch, ResultBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.models.report import Report

logger = logging.getLogger(__name__)

#: a batch of results (design, section 15)
BATCH_REPORTS, BATCH_BYTES = 100, 1024 * 1024
#: a batch of pages that are given back
PAGES, PAGES_BYTES = 20, 4 * 1024 * 1024


class ResultOutbox:
    """Collects the reports that carry results."""

    def __init__(self, heartbeat: Heartbeat, publisher: Publisher, give_up: Callable[[], bool]) -> None:
        self._heartbeat = heartbeat
        self._publisher = publisher
        self._give_up = give_up
        self._reports: list[Report] = []
        self._size = 0

    def __len__(self) -> int:
        return len(self._reports)

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


def give_back(heartbeat: Heartbeat, publisher: Publisher, queue: QueueName, pages: Sequence[Page]) -> list[Page]:
    """Put pages that were not started back onto their queue; those for which there is no room now are returned."""
    kept: list[Page] = []
    groups = cut(pages)
    while groups:
        group = groups.pop(0)
        batch = heartbeat.new_batch_id()
        runs = [page.task.key for page in group]
        try:
            body = codec.encode(PageBatch(batch=batch, pages=group))
        except MessageTooLarge:
            # not for their contents: what they save is large. Alone each of them has come in a message
            middle = len(group) // 2
            groups[:0] = [half for half in (group[:middle], group[middle:]) if half and middle]
            kept += [] if middle else group
            continue
        if not publisher.put(body, partial(heartbeat.hand_over, queue, batch, runs), 0.0):
            kept += group
    return kept


def cut(pages: Sequence[Page]) -> list[list[Page]]:
    """The pages in groups that make a batch each."""
    groups: list[list[Page]] = []
    size = 0
    for page in pages:
        length = len(page.response.content)
        if not groups or len(groups[-1]) >= PAGES or size + length > PAGES_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(page)
        size += length
    return groups
