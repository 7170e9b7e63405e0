"""The other end of status_queue, for the tests of what workers say on it; `conftest.py` makes it importable."""

import base64
import itertools
import os
import time
from collections.abc import Callable

from pyspider_lite import codec, message_queue
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.batch import StatusBatch, StatusItem
from pyspider_lite.models.names import RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat

_spaces = itertools.count()


class Scheduler:
    """The other end of status_queue."""

    def __init__(self, maxsize: int = 100) -> None:
        self.url = f"memory://heartbeat-{next(_spaces)}"
        self.maxsize = maxsize
        self.queue = self.connect()
        self.items: list[StatusItem] = []
        self.batches: list[int] = []

    def connect(self) -> MessageQueue:
        return message_queue.connect(self.url, "status_queue", maxsize=self.maxsize)

    def hear(self) -> list[StatusItem]:
        for received in self.queue.get(10_000, 0):
            items = codec.decode(received.body, StatusBatch).items
            self.items += items
            self.batches.append(len(items))
        return self.items

    def said(self) -> list[StatusItem]:
        """All but the beats."""
        return [item for item in self.hear() if not isinstance(item, Beat)]

    def beats(self) -> list[Beat]:
        return [item for item in self.hear() if isinstance(item, Beat)]


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


def incompressible(size: int) -> str:
    """Text that no compressor makes smaller than ``size`` bytes."""
    return base64.b64encode(os.urandom(size)).decode()


def run(number: int) -> RunKey:
    return ("p", str(number), 0)


def report(number: int, **fields: object) -> Report:
    return Report(project="p", taskid=str(number), url="http://x/", run=0, **fields)  # type: ignore[arg-type]
