"""Message queues: from a URL to a queue. Which backends there are is data; each is imported when it is used."""

import difflib
import importlib

from pyspider_lite.errors import ConfigError
from pyspider_lite.log import mask_url
from pyspider_lite.message_queue.base import MessageQueue

#: scheme -> module:class, called with what follows :// and the queue's name
_BACKENDS = {
    "builtin": "pyspider_lite.message_queue.builtin:BuiltinQueue",
    "memory": "pyspider_lite.message_queue.memory:MemoryQueue",
}
#: brokers that are reached by kombu; kombu+TRANSPORT is one too
_KOMBU = ("amqp", "amqps", "pyamqp", "redis", "rediss", "sentinel")


def connect(
    url: str, name: str, *, maxsize: int = 100, late_ack: bool = False, prefix: str = "pyspider_lite."
) -> MessageQueue:
    """The queue ``name`` at ``url`` for one thread; it connects when it is used. Raises ConfigError for a URL of no use.

    ``memory://SPACE`` is inside this process, ``builtin://PATH`` the built-in server's unix socket. ``maxsize`` counts messages
    (behaviour Q7; 0 bounds the bytes alone). ``prefix`` goes before the names on a broker that others may use as well.
    """
    scheme, separator, rest = url.partition("://")
    if not separator or not rest:
        raise ConfigError(
            f"{mask_url(url, alone=True)!r} is not the URL of a message queue; use builtin://PATH or redis://HOST:6379/0"
        )
    if scheme in _KOMBU or scheme.startswith("kombu+"):
        raise ConfigError(f"{mask_url(url, alone=True)}: {scheme} comes with the kombu backend, which is not there yet")
    if scheme not in _BACKENDS:
        known = sorted([*_BACKENDS, *_KOMBU])
        near = difflib.get_close_matches(scheme, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)} and kombu+TRANSPORT"
        raise ConfigError(f"{mask_url(url, alone=True)}: no message queue is called {scheme!r}; {hint}")
    module, _, attribute = _BACKENDS[scheme].partition(":")
    backend = getattr(importlib.import_module(module), attribute)
    queue: MessageQueue = backend(rest, name, maxsize=maxsize, late_ack=late_ack)
    return queue
