"""What others may ask of a running fetcher (behaviour F45): the functions of its XML-RPC port, registered by `assembly`."""

from collections.abc import Callable
from typing import Any
from xmlrpc.client import Fault

import msgspec

from pyspider_lite import codec
from pyspider_lite.counters import WINDOWS
from pyspider_lite.fetcher.fetcher import Fetcher
from pyspider_lite.models import Dispatch

_FAULT = 1


class Remote:
    """The functions that are more than a method of the fetcher; what cannot be answered is a Fault with one sentence."""

    def __init__(self, fetcher: Fetcher) -> None:
        self._fetcher = fetcher

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names under which pyspider has them; status, pause, resume and set_poolsize are ours."""
        return {
            "_quit": self._fetcher.stop,
            "size": self._fetcher.size,
            "pause": self._fetcher.pause,
            "resume": self._fetcher.resume,
            "set_poolsize": self._fetcher.set_poolsize,
            "status": self._fetcher.status,
            "fetch": self.fetch,
            "counter": self.counter,
        }

    def fetch(self, task: dict[str, Any]) -> bytes:
        """Fetch one task outside of the queues; the response as msgpack."""
        try:
            wanted = msgspec.convert(task, Dispatch)
        except msgspec.ValidationError as error:
            raise Fault(_FAULT, f"fetch: this is no task: {error}") from None
        return codec.pack(self._fetcher.fetch_now(wanted))

    def counter(self, time: str, type: str) -> dict[str, dict[str, float]]:
        """{project: {status code: number}} in a window, as sum or avg; the keys are text (X-F8 mended)."""
        if time not in WINDOWS or type not in ("sum", "avg"):
            raise Fault(_FAULT, f"counter: time must be one of {', '.join(WINDOWS)}, and type sum or avg")
        return self._fetcher.counter(time, average=type == "avg")
