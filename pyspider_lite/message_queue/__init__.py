"""Message queues: from a URL to a queue. Which backends there are is data; each is imported when it is used."""

import difflib
import importlib
from typing import Any

from pyspider_lite.errors import ConfigError
from pyspider_lite.log import mask_url
from pyspider_lite.message_queue import broker_url
from pyspider_lite.message_queue.base import MessageQueue

#: scheme -> module:class, called with what follows :// and the queue's name
_BACKENDS = {
    "builtin": "pyspider_lite.message_queue.builtin:BuiltinQueue",
    "memory": "pyspider_lite.message_queue.memory:MemoryQueue",
}
#: the same for brokers, called with the parsed URL; any other kombu+TRANSPORT is a KombuQueue
_BROKERS = {
    **dict.fromkeys(broker_url.AMQP, "pyspider_lite.message_queue.amqp_queue:AmqpQueue"),
    **dict.fromkeys(broker_url.REDIS, "pyspider_lite.message_queue.redis_queue:RedisQueue"),
}
_ANY_BROKER = "pyspider_lite.message_queue.kombu_queue:KombuQueue"


def connect(
    url: str,
    name: str,
    *,
    maxsize: int = 100,
    late_ack: bool = False,
    prefix: str = "pyspider_lite.",
    expires: float | None = None,
) -> MessageQueue:
    """The queue ``name`` at ``url`` for one thread; it connects when it is used. Raises ConfigError for a URL of no use.

    ``memory://SPACE`` is inside this process, ``builtin://PATH`` the built-in server's unix socket; brokers are spelled as
    `broker_url` says. ``maxsize`` counts messages (behaviour Q7; 0 bounds the bytes alone). On a broker, which others may use as
    well, ``prefix`` goes before the name, and a queue that nobody used for ``expires`` seconds is removed.
    """
    scheme, separator, rest = url.partition("://")
    if separator and broker_url.known(scheme):
        broker = broker_url.parse(url)
        backend = _load(_BROKERS.get(broker.scheme, _ANY_BROKER))
        return backend(broker, name, maxsize=maxsize, late_ack=late_ack, prefix=prefix, expires=expires)  # type: ignore[no-any-return]
    if not separator or not rest or ":" in scheme or "@" in scheme:
        raise ConfigError(
            f"{mask_url(url, alone=True)!r} is not the URL of a message queue; use builtin://PATH or redis://HOST:6379/0"
        )
    if scheme not in _BACKENDS:
        known = sorted([*_BACKENDS, *_BROKERS])
        near = difflib.get_close_matches(scheme, known, n=1)
        hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)} and kombu+TRANSPORT"
        raise ConfigError(f"{mask_url(url, alone=True)}: no message queue is called {scheme!r}; {hint}")
    queue: MessageQueue = _load(_BACKENDS[scheme])(rest, name, maxsize=maxsize, late_ack=late_ack)
    queue.shown = mask_url(url, alone=True)
    return queue


def _load(backend: str) -> Any:
    module, _, attribute = backend.partition(":")
    return getattr(importlib.import_module(module), attribute)
