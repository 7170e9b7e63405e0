"""Pages that go back to their queue, since they were not started: another processor may have time for them. Used by the processor's thread."""

from collections.abc import Mapping, Sequence
from functools import partial

from pyspider_lite import codec
from pyspider_lite.consumer import Publisher
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import PageBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.processor.inbox import Inbox, page_size

#: a batch
PAGES, PAGES_BYTES = 20, 4 * 1024 * 1024


class Returns:
    """Each batch is handed over on the heartbeat once it is on its queue. ``publishers``: of the queues that pages come from."""

    def __init__(self, heartbeat: Heartbeat, inbox: Inbox, publishers: Mapping[QueueName, Publisher]) -> None:
        self._heartbeat = heartbeat
        self._inbox = inbox
        self._publishers = publishers

    def give_back(self, waiting: Mapping[QueueName, list[Page]]) -> None:
        """Pages that were taken out of the inbox; those for which there is no room on their queue go into it again."""
        for queue, pages in waiting.items():
            kept = pages
            try:
                kept = self._put(queue, pages)
            finally:
                # whatever happens: we say that we have them
                self._inbox.put(queue, kept)

    def _put(self, queue: QueueName, pages: Sequence[Page]) -> list[Page]:
        """Those for which there is no room now."""
        kept: list[Page] = []
        for group in cut(pages):
            batch = self._heartbeat.new_batch_id()
            runs = [page.task.key for page in group]
            body = codec.encode(PageBatch(batch=batch, pages=group))
            if not self._publishers[queue].put(body, partial(self._heartbeat.hand_over, queue, batch, runs), 0.0):
                kept += group
        return kept


def cut(pages: Sequence[Page]) -> list[list[Page]]:
    """The pages in groups that make a batch each. A large one is alone, as it came."""
    groups: list[list[Page]] = []
    size = 0
    for page in pages:
        length = page_size(page)
        if not groups or len(groups[-1]) >= PAGES or size + length > PAGES_BYTES:
            groups.append([])
            size = 0
        groups[-1].append(page)
        size += length
    return groups
