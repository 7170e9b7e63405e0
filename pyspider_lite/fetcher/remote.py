"""What others may ask of a running fetcher (behaviour F45): the functions of its XML-RPC port, registered by `assembly`."""

from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar
from xmlrpc.client import Fault

import msgspec

from pyspider_lite import codec
from pyspider_lite.counters import WINDOWS
from pyspider_lite.fetcher.fetcher import Fetcher
from pyspider_lite.models.page import Dispatch
from pyspider_lite.rpc import FAULT
from pyspider_lite.settings import MAX_POOLSIZE

T = TypeVar("T")


class Remote:
    """The functions; what cannot be answered is a Fault with one sentence."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names under which pyspider has them; status, pause, resume, drain and set_poolsize are ours."""
        return {
            "_quit": self._fetcher.stop,
            "size": self._fetcher.size,
            "pause": self._fetcher.pause,
            "resume": self._fetcher.resume,
            "drain": self._fetcher.drain,
            "set_poolsize": self.set_poolsize,
            "status": self.status,
            "fetch": self.fetch,
            "counter": self.counter,
        }

    def status(self) -> dict[str, Any]:
        """What the fetcher is doing, see `Fetcher.status`."""
        return _answered(self._fetcher.status)

    def fetch(self, task: dict[str, Any]) -> bytes:
        """Fetch one task outside of the queues; the response as msgpack."""
        try:
            wanted = msgspec.convert(task, Dispatch)
        except msgspec.ValidationError as error:
            raise Fault(FAULT, f"fetch: this is no task: {error}") from None
        return codec.pack(_answered(partial(self._fetcher.fetch_now, wanted)))

    def counter(self, time: str, type: str) -> dict[str, dict[str, float]]:
        """{project: {status code: number}} in a window, as sum or avg; the keys are text (X-F8 mended)."""
        if time not in WINDOWS or type not in ("sum", "avg"):
            raise Fault(FAULT, f"counter: time must be one of {', '.join(WINDOWS)}, and type sum or avg")
        return _answered(partial(self._fetcher.counter, time, average=type == "avg"))

    def set_poolsize(self, poolsize: int) -> None:
        """Change how many pages are fetched at the same time; until the next start."""
        if type(poolsize) is not int or not 1 <= poolsize <= MAX_POOLSIZE:
            raise Fault(FAULT, f"set_poolsize: expected a whole number from 1 to {MAX_POOLSIZE}, got {poolsize!r:.60}")
        self._fetcher.set_poolsize(poolsize)


def _answered(ask: Callable[[], T]) -> T:
    """What the fetcher's loop says, if it does."""
    try:
        return ask()
    except TimeoutError:
        raise Fault(FAULT, "the fetcher did not answer in time") from None
    except RuntimeError:
        raise Fault(FAULT, "the fetcher does not run yet, or no more") from None
