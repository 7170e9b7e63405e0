"""What is at the URL of a message queue, in sentences: for ``check-config``. Nothing that is made there stays."""

from contextlib import closing
from typing import Any

from pyspider_lite import message_queue
from pyspider_lite.message_queue import broker_url
from pyspider_lite.models.names import QueueName

#: the names that pyspider gave to its queues (behaviour Q2)
_ORIGINAL = (
    QueueName.NEW_TASKS,
    QueueName.STATUS,
    QueueName.TO_FETCHER,
    QueueName.TO_PROCESSOR,
    QueueName.RESULTS,
)


def describe(url: str, prefix: str = "pyspider_lite.") -> list[str]:
    """What answers at ``url``, how many messages wait in which queue, and whether queues of the original are there.

    Takes at most some 5 s for each server named. Raises ConfigError for a URL of no use, and QueueError with the reason.
    """
    queue: Any
    with closing(message_queue.connect(url, QueueName.NEW_TASKS, prefix=prefix)) as queue:
        scheme, _, place = url.partition("://")
        if scheme == "memory":
            return ["queues inside this process"]
        if scheme == "builtin":
            return [f"built-in queue server at {place}: {_listed(queue.depths())}"]
        return _describe_broker(queue, broker_url.parse(url).shown, prefix)


def _describe_broker(queue: Any, shown: str, prefix: str) -> list[str]:
    ours = [f"{prefix}{name}" for name in QueueName]
    originals = [str(name) for name in _ORIGINAL if name not in ours]
    product, depths = queue.inspect([*ours, *originals])
    lines = [
        f"{shown}: {product}",
        f"queues with the prefix {prefix!r}: {_listed({name: depths[name] for name in ours if name in depths})}",
    ]
    left = {name: depths[name] for name in originals if name in depths}
    if left:
        lines.append(f"queues of pyspider itself, which are left alone: {_listed(left)}")
    return lines


def _listed(depths: dict[str, int]) -> str:
    return ", ".join(f"{name} {depth}" for name, depth in sorted(depths.items())) or "none"
