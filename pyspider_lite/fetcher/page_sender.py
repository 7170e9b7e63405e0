"""Finished pages on their way out: gathered into batches, put on fetcher2processor, handed over in the heartbeat. Used by `fetcher`.

Lives in the fetcher's event loop; only what is called when a batch is on the queue runs on the publisher's thread.
"""

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from msgspec.structs import replace

from pyspider_lite import codec
from pyspider_lite.consumer import Publisher
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.models.batch import PageBatch
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.page import FetchResponse, Page

logger = logging.getLogger(__name__)

_MAX_PAGES = 20
_MAX_BYTES = 1024 * 1024
#: seconds without a new page after which the batch goes
_IDLE = 0.010
#: what a page weighs beside its content
_OVERHEAD = 2048


class _Ready(NamedTuple):
    """An encoded batch."""

    batch: str
    body: bytes
    runs: list[RunKey]


class PageSender:
    """Takes pages one by one. ``unsent`` is about how many bytes of them are not on the queue yet; ``on_sent`` is told when that falls."""

    def __init__(self, publisher: Publisher, heartbeat: Heartbeat, on_sent: Callable[[], None]) -> None:
        self._publisher = publisher
        self._heartbeat = heartbeat
        self._on_sent = on_sent
        self._loop = asyncio.get_running_loop()
        self._pages: list[Page] = []
        self._bytes = 0
        self._last_came = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._encoding: set[asyncio.Task[None]] = set()
        self.unsent = 0

    def add(self, page: Page) -> None:
        """Send this page with the next batch."""
        size = len(page.response.content) + _OVERHEAD
        self.unsent += size
        self._pages.append(page)
        self._bytes += size
        if len(self._pages) >= _MAX_PAGES or self._bytes >= _MAX_BYTES:
            self.flush()
            return
        self._last_came = self._loop.time()
        if self._timer is None:
            self._timer = self._loop.call_at(self._last_came + _IDLE, self._on_idle)

    def flush(self) -> None:
        """Send what is gathered now."""
        if not self._pages:
            return
        pages, size = self._pages, self._bytes
        self._pages, self._bytes = [], 0
        if size < _MAX_BYTES:
            self._publish(_encoded(pages, self._heartbeat.new_batch_id), size)
            return
        task = self._loop.create_task(self._encode_aside(pages, size))
        self._encoding.add(task)
        task.add_done_callback(self._encoding.discard)

    async def drain(self) -> None:
        """Hand everything to the publisher."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.flush()
        if self._encoding:
            await asyncio.wait(self._encoding)

    def _on_idle(self) -> None:
        self._timer = None
        if not self._pages:
            return
        due = self._last_came + _IDLE
        if self._loop.time() + 0.001 < due:
            self._timer = self._loop.call_at(due, self._on_idle)
        else:
            self.flush()

    async def _encode_aside(self, pages: list[Page], size: int) -> None:
        """Compressing megabytes must not keep the other fetches waiting."""
        self._publish(await asyncio.to_thread(_encoded, pages, self._heartbeat.new_batch_id), size)

    def _publish(self, ready: list[_Ready], size: int) -> None:
        for number, (batch, body, runs) in enumerate(ready):
            weight = size if number == 0 else 0
            if not self._publisher.put(body, partial(self._sent, batch, runs, weight), timeout=0):
                logger.warning(
                    "%d pages were not sent, because the fetcher stops; they will be fetched again", len(runs)
                )

    def _sent(self, batch: str, runs: list[RunKey], weight: int) -> None:
        """On the publisher's thread."""
        self._heartbeat.hand_over(QueueName.TO_PROCESSOR, batch, runs)
        self._loop.call_soon_threadsafe(self._is_out, weight)

    def _is_out(self, weight: int) -> None:
        self.unsent -= weight
        self._on_sent()


def _encoded(pages: list[Page], new_id: Callable[[], str]) -> list[_Ready]:
    """The pages as messages: one, or one a page when together they are too large. A page that cannot travel becomes a failure."""
    batch = new_id()
    try:
        body = codec.encode(PageBatch(batch=batch, pages=pages))
    except Exception as error:
        if len(pages) > 1:
            return [ready for page in pages for ready in _encoded([page], new_id)]
        return _encoded([_unsendable(pages[0], error)], new_id)
    return [_Ready(batch, body, [page.task.key for page in pages])]


def _unsendable(page: Page, error: Exception) -> Page:
    response = page.response
    if response.error_kind == "internal":
        # even the failure has no encoding, so it is what the user gave to be saved
        response = replace(response, save=None)
    kind = "too-large" if isinstance(error, MessageTooLarge) else "internal"
    logger.warning("%s:%s: the page cannot be sent on: %s", page.task.project, page.task.taskid, error)
    failure = FetchResponse(
        status_code=599,
        url=response.url,
        orig_url=response.orig_url,
        time=response.time,
        save=response.save,
        error=f"HTTP 599: the page cannot be sent on: {error}",
        error_kind=kind,
        timings=response.timings,
    )
    return Page(page.task, failure)
