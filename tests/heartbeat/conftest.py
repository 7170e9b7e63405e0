"""What the tests of the heartbeat share: ``scheduler`` hears what ``worker`` says."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo

sys.path.insert(0, str(Path(__file__).parent))

from status_listener import Scheduler


@pytest.fixture
def scheduler() -> Scheduler:
    return Scheduler()


@pytest.fixture
def worker(scheduler: Scheduler) -> Iterator[Heartbeat]:
    worker = Heartbeat(WorkerInfo.make("fetcher", 10, "hash", "http://127.0.0.1:1"), scheduler.connect, interval=0.05)
    worker.start()
    yield worker
    worker.stop(5)
