"""What is imported from ``pyspider.message_queue``: queues for programs that feed the crawl (behaviour Q1, Q6).

Only ``newtask_queue`` speaks pyspider's language from outside: a task dict, or a list of them. What travels on the other queues is
between our own daemons.
"""

from queue import Empty, Full
from typing import Any

import msgspec

from pyspider_lite import codec, message_queue
from pyspider_lite.errors import ConfigError, QueueFull
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.names import QueueName

__all__ = ["Empty", "Full", "connect_message_queue"]

#: a put that is told to wait as long as it takes
_FOR_EVER = 7 * 86400.0


class NewTaskQueue:
    """The queue of submissions."""

    Empty, Full = Empty, Full

    def __init__(self, url: str, maxsize: int, prefix: str) -> None:
        self._queue = message_queue.connect(url, QueueName.NEW_TASKS, maxsize=maxsize, prefix=prefix)

    def put(self, obj: Any, block: bool = True, timeout: float | None = None) -> None:
        """Enter a task dict or a list of them; Full if there was no room in time."""
        tasks = [msgspec.Raw(codec.pack(task)) for task in (obj if isinstance(obj, list) else [obj])]
        try:
            self._queue.put(
                codec.encode(NewTaskBatch(tasks=tasks)), (_FOR_EVER if timeout is None else timeout) if block else 0.0
            )
        except QueueFull as error:
            raise Full(str(error)) from None

    def put_nowait(self, obj: Any) -> None:
        """`put` that does not wait."""
        self.put(obj, False)

    def qsize(self) -> int:
        """How many messages wait."""
        return self._queue.qsize()

    def empty(self) -> bool:
        """Whether none waits."""
        return self.qsize() == 0

    def close(self) -> None:
        """Give the connection back."""
        self._queue.close()


def connect_message_queue(
    name: str, url: str | None = None, maxsize: int = 0, lazy_limit: bool = True, prefix: str = "pyspider_lite."
) -> NewTaskQueue:
    """The queue ``name`` at ``url``, which a daemon of ours reads; ConfigError for another than newtask_queue."""
    if name != QueueName.NEW_TASKS:
        raise ConfigError(f"{name} carries messages between the daemons only; tasks are entered by newtask_queue")
    if not url:
        raise ConfigError(
            "the URL of the broker is missing, as redis://HOST:6379/0: without one queues are inside `all`"
        )
    return NewTaskQueue(url, maxsize, prefix)
