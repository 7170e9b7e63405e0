"""What is imported from ``pyspider.libs.multiprocessing_queue``: a queue between processes whose size is known on every system."""

import multiprocessing
from multiprocessing.queues import Queue as _Queue
from typing import Any

__all__ = ["Queue"]


def Queue(maxsize: int = 0) -> "_Queue[Any]":
    """A multiprocessing.Queue."""
    return multiprocessing.Queue(maxsize)
