"""The fetcher role: takes tasks off scheduler2fetcher, fetches up to ``poolsize`` of them at once, sends the pages on.

One asyncio loop; the two queues have threads of their own (`consumer`). It takes no more than it can fetch, and nothing while
processors or the queue behind are full (design, section 4; demand UA30). Built by the composition root, which calls `run` and `stop`.
"""

import asyncio
import contextlib
import logging
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Protocol, TypeVar

from pyspider_lite.consumer import Consumer, Publisher
from pyspider_lite.counters import Counters
from pyspider_lite.fetcher.epochs import Epochs
from pyspider_lite.fetcher.fetch import fetcher_of
from pyspider_lite.fetcher.gauge import LOOK_EACH, Gauge
from pyspider_lite.fetcher.page_sender import PageSender
from pyspider_lite.fetcher.urls import without_password
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.message_queue.connection import Connect
from pyspider_lite.models.batch import TaskBatch
from pyspider_lite.models.names import QueueName, RunKey
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.readings import Reading

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: finished pages that may wait to be put on the queue, bytes
_MAX_UNSENT = 64 * 1024 * 1024
#: more than _MAX_UNSENT can ever fill, so that putting never waits
_PUBLISHER_CAPACITY = 100_000
#: seconds for the consumer's thread when stopping
_END_OF_CONSUMER = 5.0
#: seconds for an answer of the loop, and for one turn of it
_ANSWER, _TURN = 5.0, 2.0
#: projects that are counted by name
_COUNTED = 1000


class Fetching(Protocol):
    """`fetch.Fetch`, or what a test or a user puts in its place."""

    async def __call__(self, task: Dispatch) -> FetchResponse: ...

    def close(self) -> None: ...


class Fetcher:
    """The daemon. Subclasses may override `on_fetch` and `on_result` (behaviour F5)."""

    def __init__(
        self,
        *,
        fetch: Fetching,
        heartbeat: Heartbeat,
        connect_in: Connect,
        connect_out: Connect,
        poolsize: int = 100,
        drain_timeout: float = 30.0,
    ) -> None:
        self._fetch = fetch
        self._heartbeat = heartbeat
        self._connect_in = connect_in
        self._connect_out = connect_out
        self._poolsize = poolsize
        self._drain_timeout = drain_timeout
        self._stopping = False
        #: "", paused or draining: what was ordered
        self._ordered = ""
        self._loop: asyncio.AbstractEventLoop | None = None
        self._woken: asyncio.Event | None = None
        self._sender: PageSender | None = None
        self._waiting: deque[Dispatch] = deque()
        self._running: dict[RunKey, asyncio.Task[None]] = {}
        self._processors = 1
        self._epochs = Epochs()
        #: tasks delivered by the consumer's thread, and those of them that the loop has seen: each has one writer
        self._delivered = 0
        self._accepted = 0
        self._free = threading.Event()
        self._counters = Counters(max_projects=_COUNTED)
        self._gauge = Gauge(connect_out)
        self._consumer: Consumer[TaskBatch] | None = None
        self._queues: dict[str, Consumer[TaskBatch] | Publisher] = {}
        self._stepped = time.monotonic()
        self._hooked = type(self).on_fetch is not Fetcher.on_fetch, type(self).on_result is not Fetcher.on_result

    # --- for users' subclasses ---

    def on_fetch(self, type: str, task: Dispatch) -> None:
        """Called before a fetch; ``type`` is data, http, phantomjs, splash or puppeteer."""

    def on_result(self, type: str, task: Dispatch, result: FetchResponse) -> None:
        """Called after a fetch."""

    # --- control: from any thread ---

    def run(self) -> None:
        """Work until `stop`; all is handed over or given back then. The heartbeat runs around this."""
        while not self._stopping:
            try:
                asyncio.run(self._main())
            except Exception:
                logger.exception("the fetcher's loop broke down; it starts again")
                time.sleep(1.0)

    def stop(self) -> None:
        """Take nothing more, finish what runs within ``drain_timeout`` seconds, give the rest back. May be called by a signal handler."""
        self._stopping = True
        self._call(self._wake)

    def size(self) -> int:
        """How many fetches run (behaviour F45)."""
        return len(self._running)

    def pause(self) -> None:
        """Take no more tasks until `resume`; what was taken is fetched."""
        self._order("paused")

    def drain(self) -> None:
        """As `pause`, and what was not started is given back: other fetchers get it at once."""
        self._order("draining")

    def resume(self) -> None:
        """Take tasks again."""
        self._order("")

    @property
    def state(self) -> str:
        """ "" for at work, else paused, draining, or drained: then nothing of the scheduler's is in hand."""
        return "drained" if self._ordered == "draining" and not self._heartbeat.load else self._ordered

    @property
    def poolsize(self) -> int:
        """How many fetches may run at once."""
        return self._poolsize

    def set_poolsize(self, poolsize: int) -> None:
        """Change how many fetches may run at once; said to the scheduler with the next beat."""
        if poolsize < 1:
            raise ValueError(f"poolsize must be at least 1, not {poolsize}")
        self._poolsize = poolsize
        self._heartbeat.set_pool_size(poolsize)
        self._call(self._pump)

    def fetch_now(self, task: Dispatch, timeout: float = 180.0) -> FetchResponse:
        """Fetch one task outside of the queues, for RPC. Not from the fetcher's own thread. Raises TimeoutError, RuntimeError."""
        return self._in_loop(partial(self._fetched, task), timeout)

    def counter(self, window: str, *, average: bool) -> dict[str, dict[str, float]]:
        """{project: {name: number}}: pages by status code, in the window 5m_time the seconds that they took (behaviour F45). Raises
        KeyError for an unknown window."""

        async def read() -> dict[str, dict[str, float]]:
            return self._counters.get(time.time(), window, average=average)

        return self._in_loop(read, _ANSWER)

    def status(self) -> dict[str, Any]:
        """What it is doing: in hand are the tasks that ``running``, ``waiting`` and pages not yet on the queue (``unsent_bytes``) come
        to; ``queues`` says since when one cannot be reached (Unix time, None: it can)."""
        return {
            "state": "stopping" if self._stopping else self.state,
            "load": self._heartbeat.load,
            "poolsize": self._poolsize,
            "running": len(self._running),
            "waiting": len(self._waiting),
            "unsent_bytes": self._sender.unsent if self._sender is not None else 0,
            "queues": {name: part.waiting_since for name, part in self._queues.items()},
            "counter": self.counter("5m", average=False),
        }

    @property
    def stepped(self) -> float:
        """time.monotonic() of the last turn of its loop that is known; asks it to turn."""
        turned = threading.Event()
        self._call(turned.set)
        if turned.wait(_TURN):
            self._stepped = time.monotonic()
        return self._stepped

    def readings(self) -> list[Reading]:
        """For /metrics."""
        pages: Counter[str] = Counter()
        with contextlib.suppress(RuntimeError, TimeoutError):
            for codes in self.counter("all", average=False).values():
                pages.update({code: int(count) for code, count in codes.items()})
        unsent = self._sender.unsent if self._sender is not None else 0
        return [
            Reading("fetches_running", "Fetches that run", {"": len(self._running)}),
            Reading("fetches_waiting", "Tasks that wait for a free slot", {"": len(self._waiting)}),
            Reading("unsent_bytes", "Pages that wait to be put on their queue", {"": unsent}),
            Reading("pages", "Pages by status code", pages, "status", counter=True),
        ]

    def _order(self, state: str) -> None:
        self._ordered = state
        self._heartbeat.set_state(state)
        self._call(self._pump)
        if state and self._consumer is not None:
            self._consumer.wake()

    def _in_loop(self, ask: Callable[[], Coroutine[Any, Any, T]], timeout: float) -> T:
        if self._loop is None:
            raise RuntimeError("the fetcher does not run")
        return asyncio.run_coroutine_threadsafe(ask(), self._loop).result(timeout)

    def _call(self, what: Any) -> None:
        loop = self._loop
        if loop is not None:
            try:
                loop.call_soon_threadsafe(what)
            except RuntimeError:
                logger.debug("the fetcher's loop is closed already")

    def _wake(self) -> None:
        if self._woken is not None:
            self._woken.set()

    # --- the loop ---

    async def _main(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._woken = asyncio.Event()
        self._delivered = self._accepted = 0
        publisher = Publisher(self._connect_out, capacity=_PUBLISHER_CAPACITY, name="fetcher2processor")
        consumer = Consumer(
            self._connect_in,
            TaskBatch,
            self._deliver,
            broken=self._heartbeat.broken,
            room=self._has_room,
            name="scheduler2fetcher",
        )
        self._consumer = consumer
        self._sender = PageSender(publisher, self._heartbeat, self._pump)
        self._queues = {QueueName.TO_FETCHER: consumer, QueueName.TO_PROCESSOR: publisher}
        publisher.start()
        consumer.start()
        try:
            self._update_room()
            if not self._stopping:
                await self._woken.wait()
        finally:
            await self._shut_down(consumer, publisher)
            self._loop = None

    async def _shut_down(self, consumer: Consumer[TaskBatch], publisher: Publisher) -> None:
        deadline = time.monotonic() + self._drain_timeout
        self._free.clear()
        if self._stopping:
            self._gauge.stop()
        await asyncio.to_thread(consumer.stop, _END_OF_CONSUMER)
        await self._release_waiting()
        if self._running:
            logger.info("stopping: waiting for %d fetches, at most %.0f s", len(self._running), self._drain_timeout)
            await asyncio.wait(self._running.values(), timeout=deadline - time.monotonic())
        left = dict(self._running)
        for task in left.values():
            task.cancel()
        if left:
            await asyncio.wait(left.values())
            self._running.clear()
            await asyncio.to_thread(self._heartbeat.release, list(left))
            logger.warning("%d fetches were not over in time; given back", len(left))
        assert self._sender is not None
        await self._sender.drain()
        await asyncio.to_thread(publisher.stop, max(1.0, deadline - time.monotonic()))
        self._gauge.close()
        self._fetch.close()

    async def _release_waiting(self) -> None:
        runs = [task.key for task in self._waiting]
        self._waiting.clear()
        await asyncio.to_thread(self._heartbeat.release, runs)

    def _accept(self, batch: TaskBatch) -> None:
        self._accepted += len(batch.tasks)
        self._processors = max(1, batch.processors)
        self._waiting.extend(batch.tasks)
        self._pump()

    def _pump(self) -> None:
        """Start what may run. Called whenever a slot, or room behind us, may have come free."""
        if self._stopping:
            return
        # after standing still: the scheduler took us for dead and has given these out again
        if self._waiting and (self._ordered == "draining" or self._heartbeat.frozen()):
            self._heartbeat.release([task.key for task in self._waiting])
            self._waiting.clear()
        assert self._sender is not None and self._loop is not None
        while self._waiting and len(self._running) < self._poolsize and self._sender.unsent < _MAX_UNSENT:
            task = self._waiting.popleft()
            # given out twice, it is fetched once
            if task.key not in self._running:
                self._running[task.key] = self._loop.create_task(self._run_one(task))
        self._update_room()

    def _update_room(self) -> None:
        taken = len(self._running) + len(self._waiting) + self._delivered - self._accepted
        held_back = self._stopping or self._ordered or self._sender is None or self._sender.unsent >= _MAX_UNSENT
        if held_back or taken >= self._poolsize:
            self._free.clear()
        elif not self._free.is_set():
            self._free.set()

    async def _run_one(self, task: Dispatch) -> None:
        try:
            response = await self._fetched(task)
            assert self._sender is not None
            self._sender.add(Page(task, response))
        except Exception:
            # given back, it is tried again
            logger.exception("%s:%s: an error in the fetcher", task.project, task.taskid)
            self._heartbeat.release([task.key])
        # not after a cancellation: then _shut_down clears up
        del self._running[task.key]
        self._pump()

    async def _fetched(self, task: Dispatch) -> FetchResponse:
        if self._hooked[0]:
            self._hook(partial(self.on_fetch, fetcher_of(task), task))
        response = await self._fetch(task)
        _log(task, response)
        now = time.time()
        self._counters.event(now, task.project, str(response.status_code))
        self._counters.time(now, task.project, "time", response.time)
        if self._hooked[1]:
            self._hook(partial(self.on_result, fetcher_of(task), task, response))
        return response

    def _hook(self, call: partial[None]) -> None:
        try:
            call()
        except Exception:
            logger.exception("an error in %s of %s", call.func.__name__, type(self).__name__)

    # --- on the consumer's thread ---

    def _deliver(self, batch: TaskBatch) -> None:
        if self._epochs.outdated(batch.epoch, time.monotonic()):
            logger.warning("a batch of a scheduler that leads no longer was dropped: %d tasks", len(batch.tasks))
            return
        runs = [task.key for task in batch.tasks]
        self._heartbeat.take(QueueName.TO_FETCHER, batch.batch, runs)
        if self._ordered:  # it came just before the consumer could hear of it
            self._heartbeat.release(runs)
            return
        self._delivered += len(batch.tasks)
        if len(batch.tasks):
            self._free.clear()
        self._call(partial(self._accept, batch))

    def _has_room(self, seconds: float) -> bool:
        """A slot is free here, and processors keep up with the pages."""
        until = time.monotonic() + seconds
        if not self._free.wait(seconds):
            return False
        while True:
            if self._gauge.keeps_up(self._processors):
                return self._free.is_set() and not self._ordered
            if time.monotonic() + LOOK_EACH > until:
                return False
            time.sleep(LOOK_EACH)


def _log(task: Dispatch, response: FetchResponse) -> None:
    """`[200] project:taskid url 0.12s` (behaviour F26)."""
    level = logging.INFO if 200 <= response.status_code < 300 else logging.WARNING
    if logger.isEnabledFor(level):
        url = without_password(task.url)
        reason = f" {response.error or response.content}" if response.error_kind else ""
        logger.log(
            level, "[%d] %s:%s %s %.2fs%s", response.status_code, task.project, task.taskid, url, response.time, reason
        )
