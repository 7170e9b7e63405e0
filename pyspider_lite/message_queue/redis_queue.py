"""A queue on Redis, through a channel of ours for kombu's redis transport.

* A queue is one list, an entry is a body as it is: kombu's envelope (JSON around base64) would cost half as much again in memory, and
  more time than all the rest. Put is LPUSH, which also tells the length; get is RPOP, or a BRPOP that waits in the server, so
  that idle workers do not poll: one command a message.
* Entries in kombu's envelope are unwrapped, so that a plain kombu producer may feed us; any other entry is given out as it is.
* ``late_ack``: a message is moved in one step (BRPOPLPUSH) to a list of its taker's own, and removed there when it is acknowledged. Each
  taker enters a deadline into a sorted set and renews it; whoever comes next puts back what those have whose deadline has passed.
  `close` does so at once.
* ``expires`` is renewed by each put. A list without entries is no key, so nothing else is left over.

Redis 6.0 or newer (BRPOP with fractions of a second). Redis Cluster is not supported: kombu has no transport for it.
"""

import base64
import contextlib
import functools
import json
import math
import time
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import kombu.transport.redis as kombu_redis
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pyspider_lite.errors import QueueError
from pyspider_lite.message_queue.base import Received
from pyspider_lite.message_queue.broker_url import PATIENCE
from pyspider_lite.message_queue.kombu_queue import KombuQueue, as_bytes

#: seconds of one blocking command: below PATIENCE, after which a silent server counts as dead
_LONGEST_BLOCK = 3.0
#: ... and the shortest: 0 would be for ever, and Redis 6 rounds down to it
_SHORTEST_BLOCK = 0.01
#: seconds after which what a taker has goes back, if it does not renew
TERM = 15.0
_RENEWAL = TERM / 3

#: the driver's own retries would make four deadlines of one
_NO_RETRY = Retry(NoBackoff(), 0)
_TO_SENTINEL = {"socket_timeout": PATIENCE, "socket_connect_timeout": PATIENCE, "retry": _NO_RETRY}

#: KEYS: queue, takers; ARGV: who, seconds. Enters or renews a deadline and puts back what the late ones have.
_TAKERS = """
local clock = redis.call('time')
local now = clock[1] + clock[2] / 1000000
redis.call('zadd', KEYS[2], now + ARGV[2], ARGV[1])
for _, taker in ipairs(redis.call('zrangebyscore', KEYS[2], '-inf', now)) do
  local taken = KEYS[1] .. ':taken:' .. taker
  local entry = redis.call('lpop', taken)
  while entry do
    redis.call('rpush', KEYS[1], entry)
    entry = redis.call('lpop', taken)
  end
  redis.call('zrem', KEYS[2], taker)
end
return 0
"""


class _OurChannel:
    """What differs from kombu's channel, with or without Sentinel."""

    body_encoding = None
    #: one list a queue
    priority_steps = [0]
    socket_timeout = PATIENCE
    socket_connect_timeout = PATIENCE
    socket_keepalive = True
    health_check_interval = 25

    client: Any

    def _connparams(self, asynchronous: bool = False) -> dict[str, Any]:
        parent: Any = super()
        return {**parent._connparams(asynchronous=asynchronous), "retry": _NO_RETRY}

    @contextlib.contextmanager
    def conn_or_acquire(self, client: Any = None) -> Iterator[Any]:
        """kombu's own has two pools, and so two sockets."""
        yield client or self.client


class _Channel(_OurChannel, kombu_redis.Channel):  # type: ignore[misc]
    pass


class _SentinelChannel(_OurChannel, kombu_redis.SentinelChannel):  # type: ignore[misc]
    pass


class _Transport(kombu_redis.Transport):  # type: ignore[misc]
    Channel = _Channel


class _SentinelTransport(kombu_redis.SentinelTransport):  # type: ignore[misc]
    Channel = _SentinelChannel


class RedisQueue(KombuQueue):
    """One queue of a Redis server."""

    @functools.cached_property
    def _taker(self) -> str:
        return uuid.uuid4().hex

    _renewed = 0.0
    #: of the connection on which it waits
    _client_id = 0
    _woken = False
    #: RPOP takes a count
    _pops_many = True
    patience = _LONGEST_BLOCK
    #: each put tells the length: who puts seldom, as an idle worker its beats, needs not ask for it before
    _look_holds = math.inf

    def _describe_server(self, keywords: dict[str, Any]) -> Any:
        keywords = dict(keywords)
        socket, master = keywords.pop("socket", None), keywords.pop("master_name", None)
        keywords["transport"] = _SentinelTransport if master else _Transport
        options = {"master_name": master, "sentinel_kwargs": _TO_SENTINEL} if master else {}
        server = super()._describe_server({**keywords, "transport_options": options})
        if socket:  # kombu reads the path, and the login as well, from a URL in place of the host
            login = ":".join(quote(keywords[key] or "", safe="") for key in ("userid", "password"))
            server.hostname = f"socket://{login}@{quote(socket)}"
        return server

    def _prepare(self) -> None:
        with contextlib.suppress(redis.ResponseError):  # no right to ask: then nobody wakes it
            self._client_id = int(self._channel.client.client_id())
        if self._late_ack:
            self._enter(0)  # what the last connection left
            self._enter(TERM)

    def wake(self) -> None:
        """CLIENT UNBLOCK, on a connection of its own: what the server has given out by then is not lost."""
        self._woken = True
        with contextlib.suppress(Exception):
            ours = self._channel.client.connection_pool
            pool = redis.ConnectionPool(connection_class=ours.connection_class, **ours.connection_kwargs)
            with contextlib.closing(redis.Redis(connection_pool=pool)) as other:
                other.client_unblock(self._client_id)
                pool.disconnect()

    def get(self, limit: int, timeout: float) -> list[Received]:
        """See the contract."""
        if limit == 1 or self._late_ack or not self._pops_many:
            return super().get(limit, timeout)
        received = super().get(1, timeout)
        if received:
            with contextlib.suppress(QueueError), self._reach():  # the next call meets the error again
                received += [Received(unwrap(entry)) for entry in self._pop_many(limit - 1)]
        return received

    def _publish(self, body: bytes) -> int | None:
        client = self._channel.client
        if not self._expires:
            return int(client.lpush(self._key, body))
        pipe = client.pipeline()
        pipe.lpush(self._key, body)
        pipe.pexpire(self._key, max(1, int(self._expires * 1000)))
        return int(pipe.execute()[0])

    def _take(self, wait: float) -> tuple[bytes, object] | None:
        end = time.monotonic() + wait
        while True:
            if self._late_ack and time.monotonic() > self._renewed + _RENEWAL:
                self._enter(TERM)
            left = end - time.monotonic()
            entry = self._pop(min(left, _LONGEST_BLOCK) if wait > 0 else 0.0)
            if entry is not None:
                return unwrap(entry), entry if self._late_ack else None
            if self._woken or end - time.monotonic() < _SHORTEST_BLOCK:
                self._woken = False
                return None

    def _pop(self, wait: float) -> bytes | None:
        """The oldest entry, after one command."""
        client = self._channel.client
        if self._late_ack:
            taken = f"{self._key}:taken:{self._taker}"
            if wait > 0:
                entry = client.brpoplpush(self._key, taken, max(wait, _SHORTEST_BLOCK))
            else:
                entry = client.rpoplpush(self._key, taken)
        elif wait > 0:
            popped = client.brpop(self._key, max(wait, _SHORTEST_BLOCK))
            entry = popped[1] if popped else None
        else:
            entry = client.rpop(self._key)
        return entry  # type: ignore[no-any-return]

    def _pop_many(self, limit: int) -> list[bytes]:
        """The oldest entries, by one command. Redis before 6.2 knows no such: it is asked for each from the next time on."""
        try:
            return self._channel.client.rpop(self._key, limit) or []
        except redis.ResponseError as error:
            if "number of arguments" not in str(error):
                raise
            self._pops_many = False
            return []

    def _acknowledge(self, tags: list[Any]) -> None:
        pipe = self._channel.client.pipeline(transaction=False)
        for entry in tags:  # the oldest are at the end
            pipe.lrem(f"{self._key}:taken:{self._taker}", -1, entry)
        pipe.execute()

    def _count(self) -> int:
        return int(self._channel.client.llen(self._key))

    def _look(self, queue: str) -> int | None:
        return int(self._channel.client.llen(queue)) or None  # an empty list is no key

    def _give_back(self) -> None:
        if self._late_ack:
            self._enter(0)

    def _enter(self, seconds: float) -> None:
        self._channel.client.eval(_TAKERS, 2, self._key, f"{self._key}:takers", self._taker, seconds)
        self._renewed = time.monotonic()

    def _product(self) -> str:
        """Writes a key and takes it away: a server that is full, or a copy that only reads, answers everything else."""
        client = self._channel.client
        client.set(f"{self._key}:check", b"", px=1000)
        client.delete(f"{self._key}:check")
        info = client.info()
        text = f"Redis {info.get('redis_version', '')}".strip()
        policy = str(info.get("maxmemory_policy", ""))
        if info.get("maxmemory") and policy not in ("", "noeviction"):
            text += f"; it throws keys away when memory is short: set maxmemory-policy noeviction, not {policy}"
        return text

    def _reason(self, error: Exception) -> str:
        if "used memory > 'maxmemory'" in str(error):
            return "redis is full: its maxmemory is reached and it takes nothing more; free memory there or raise maxmemory"
        if "MISCONF" in str(error):
            return "redis cannot save to its disk and takes nothing more; free disk there, its log says more"
        return super()._reason(error)

    def _is_refusal(self, error: Exception) -> bool:
        return isinstance(error, redis.AuthenticationError) or "NOAUTH" in str(error)


def unwrap(entry: bytes) -> bytes:
    """The body of an entry: of kombu's envelope what is in it, anything else as it is."""
    if not entry.startswith(b"{"):
        return entry
    try:
        envelope = json.loads(entry)
        body = envelope["body"]
        if envelope["properties"].get("body_encoding") == "base64":
            return base64.b64decode(body, validate=True)
        return as_bytes(body) if isinstance(body, str) else entry
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return entry
