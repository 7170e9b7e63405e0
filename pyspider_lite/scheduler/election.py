"""`coordination: zookeeper://...`: an ephemeral node of ZooKeeper says which scheduler may try to lead; kazoo appears only here.

The node decides in place of the leader row's expiry. What makes it safe is still the epoch in the database: who is elected raises it,
so that one who was elected before, and does not know yet that his session is over, cannot write. Used by `leader`.
"""

import importlib.util
import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from pyspider_lite.errors import ConfigError, CoordinationError
from pyspider_lite.outages import Waiter

logger = logging.getLogger("scheduler")

#: seconds after which ZooKeeper takes a silent scheduler for dead: the least that its servers accept with their usual tickTime
SESSION = 4.0
#: seconds for one answer, and for a first connection
_ANSWER, _START = 5.0, 1.0
_PORT = 2181
_PATH = "/pyspider_lite"


class Address(NamedTuple):
    """Where the ensemble is, and under which node we are there."""

    #: HOST:PORT,HOST:PORT
    hosts: str
    path: str

    @property
    def shown(self) -> str:
        """As people see it."""
        return f"zookeeper://{self.hosts}{self.path}"


def parse(url: str) -> Address:
    """``zookeeper://HOST[:PORT][,HOST[:PORT]...][/PATH]``. Raises ConfigError, also when kazoo is not installed."""
    scheme, _, rest = url.partition("://")
    servers, slash, path = rest.partition("/")
    hosts = [host if host.rpartition(":")[0] else f"{host}:{_PORT}" for host in servers.split(",")]
    ports = [host.rpartition(":")[2] for host in hosts]
    well_formed = scheme == "zookeeper" and all(servers.split(",")) and "@" not in servers
    if not well_formed or not all(port.isdigit() and 0 < int(port) < 65536 for port in ports):
        raise ConfigError("coordination: expected zookeeper://HOST[:PORT][,HOST[:PORT]...][/PATH]")
    if importlib.util.find_spec("kazoo") is None:
        raise ConfigError(
            "coordination: zookeeper:// needs kazoo; install it with: pip install 'pyspider_lite[zookeeper]'"
        )
    return Address(",".join(hosts), f"{slash}{path.strip('/')}" if path.strip("/") else _PATH)


class Election:
    """One candidate with a session of its own. ``changed()`` is called, on a thread of kazoo, whenever it is worth asking again."""

    def __init__(self, address: Address, holder: str, changed: Callable[[], None]) -> None:
        self._address = address
        self._holder = holder.encode()
        self._changed = changed
        self._client: Any = None
        self._waiter = Waiter()
        #: the session is over: another may have been elected
        self.lost = False

    def won(self) -> bool:
        """Whether the node is ours now; makes it if it is nobody's. False too while ZooKeeper cannot be reached: that is said in the log."""
        from kazoo.exceptions import KazooException
        from kazoo.handlers.threading import KazooTimeoutError

        try:
            return self._try()
        except (KazooException, KazooTimeoutError, CoordinationError) as error:
            self._away(str(error) or type(error).__name__)
            return False

    def close(self) -> None:
        """End the session: the node goes with it, and another is elected at once."""
        client, self._client = self._client, None
        if client is not None:
            client.remove_listener(self._heard)
            client.stop()
            client.close()
        self._waiter.stop()

    def _try(self) -> bool:
        from kazoo.exceptions import NodeExistsError, NoNodeError

        client = self._connected()
        node = f"{self._address.path}/leader"
        try:
            client.create_async(node, self._holder, ephemeral=True, makepath=True).get(timeout=_ANSWER)
        except NodeExistsError:
            # the one who is told of its end asks again
            try:
                _, state = client.get_async(node, watch=self._node_changed).get(timeout=_ANSWER)
            except NoNodeError:
                self._changed()
                return False
            return bool(state.ephemeralOwner == client.client_id[0])
        return True

    def _connected(self) -> Any:
        """The client; it comes back by itself when its connection breaks."""
        if self._client is None:
            self._client = connect(self._address)
            self._client.add_listener(self._heard)
            self._client.start_async().wait(_START)
        if not self._client.connected:
            raise CoordinationError("it does not answer")
        return self._client

    def _node_changed(self, event: Any) -> None:
        self._changed()

    def _heard(self, state: str) -> None:
        """SUSPENDED: the session may live on; who leads goes on while the database still has its epoch. LOST: it is over."""
        if state == "SUSPENDED":
            self._away("the connection broke")
        elif state == "LOST":
            logger.warning("the session with %s is over", self._address.shown)
            self.lost = True
        else:
            self._waiter.back()
        self._changed()

    def _away(self, reason: str) -> None:
        self._waiter.away(CoordinationError(reason), self._address.shown)


def connect(address: Address) -> Any:
    """A client that tries for ever to be connected, with pauses of at most 1 s; not started yet."""
    import kazoo.client
    from kazoo.retry import KazooRetry

    logging.getLogger("kazoo").setLevel(logging.ERROR)  # what it says is said by `outages`
    return kazoo.client.KazooClient(
        hosts=address.hosts,
        timeout=SESSION,
        connection_retry=KazooRetry(max_tries=-1, delay=0.1, max_delay=1.0),
    )


def describe(address: Address) -> str:
    """For check-config: who is elected. Changes nothing. Raises CoordinationError."""
    from kazoo.exceptions import KazooException, NoNodeError
    from kazoo.handlers.threading import KazooTimeoutError

    client = connect(address)
    try:
        client.start(timeout=_ANSWER)
        data, _ = client.get_async(f"{address.path}/leader").get(timeout=_ANSWER)
        return f"{data.decode(errors='replace')} is elected"
    except NoNodeError:
        return "no scheduler is elected"
    except (KazooException, KazooTimeoutError) as error:
        raise CoordinationError(f"{address.shown}: {str(error) or type(error).__name__}") from error
    finally:
        client.stop()
        client.close()
