"""The built-in queue server: named queues behind a unix socket, in the process that starts the others and does nothing else.

One thread, no polling: whoever waits for a message or for room is parked until it comes or the deadline passes. A client that
dies takes nothing with it: what was not wholly written to it, and what it took with late_ack and did not acknowledge, goes back
to where it was. The wire format is in `builtin`.
"""

import contextlib
import heapq
import itertools
import logging
import os
import selectors
import socket
import stat
import struct
import threading
import time
from collections import deque

from pyspider_lite.errors import RefusedToStart
from pyspider_lite.message_queue.builtin import (
    LENGTH,
    MAX_FRAME,
    MESSAGE,
    REPLY,
    REQUEST,
    Op,
    Status,
    address,
    encode_depths,
)
from pyspider_lite.message_queue.store import Entry, Store

logger = logging.getLogger(__name__)

_READ = 256 * 1024
#: no request waits longer
_MAX_SECONDS = 86400.0


class _Peer:
    """One connection and what it is owed."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.received = bytearray()
        self.unsent: deque[memoryview] = deque()
        #: what the reply being written carries
        self.delivering: tuple[_Queue, list[int]] | None = None
        #: keep what is delivered until it is acknowledged
        self.late_ack = False
        self.owed: dict[_Queue, set[int]] = {}
        self.parked: _Parked | None = None
        self.closed = False


class _Parked:
    """A request that waits: for a message (``body`` is None) or for room."""

    def __init__(self, peer: _Peer, queue: "_Queue", number: int, body: bytes | None) -> None:
        self.peer = peer
        self.queue = queue
        self.number = number
        self.body = body


class _Queue:
    """A store and who waits for it, in order of arrival."""

    def __init__(self) -> None:
        self.store = Store()
        self.getters: deque[_Parked] = deque()
        self.putters: deque[_Parked] = deque()


class _Malformed(Exception):
    """The bytes are no request."""


class QueueServer:
    """Serves queues at the unix socket ``path`` (mode 0600) on a thread of its own."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._queues: dict[str, _Queue] = {}
        self._peers: set[_Peer] = set()
        self._deadlines: list[tuple[float, int, _Parked]] = []
        self._order = itertools.count()
        self._stopping = False
        self._thread = threading.Thread(target=self._serve, name="queue-server", daemon=True)

    def start(self) -> None:
        """Listen. Raises RefusedToStart when another server answers at the path, ConfigError when the path is too long."""
        self._listener = _listen(self.path)
        self._selector: selectors.BaseSelector = selectors.DefaultSelector()
        self._wake, self._woken = socket.socketpair()
        self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
        self._selector.register(self._woken, selectors.EVENT_READ, None)
        self._thread.start()

    def stop(self, timeout: float = 5.0) -> None:
        """Close all connections and the socket; what waits in the queues is gone (the scheduler's leases bring it back)."""
        self._stopping = True
        if self._thread.is_alive():
            self._wake.send(b"x")
            self._thread.join(timeout)
            self._wake.close()
            self._woken.close()  # not by the thread: it may end by itself before it is woken

    # --- the loop ---

    def _serve(self) -> None:
        while not self._stopping:
            try:
                for key, events in self._selector.select(self._until_deadline()):
                    if isinstance(key.data, _Peer):
                        self._attend(key.data, events)
                    elif key.data is not None:
                        key.data()
                self._expire()
            except Exception:
                logger.exception("an error in the queue server; going on")
                time.sleep(0.1)
        self._close_all()

    def _until_deadline(self) -> float | None:
        while self._deadlines and self._deadlines[0][2].peer.parked is not self._deadlines[0][2]:
            heapq.heappop(self._deadlines)
        return max(0.0, self._deadlines[0][0] - time.monotonic()) if self._deadlines else None

    def _expire(self) -> None:
        now = time.monotonic()
        while self._deadlines and self._deadlines[0][0] <= now:
            _, _, parked = heapq.heappop(self._deadlines)
            if parked.peer.parked is parked:
                self._unpark(parked)
                self._reply(parked.peer, Status.OK if parked.body is None else Status.FULL)

    def _close_all(self) -> None:
        for peer in list(self._peers):
            self._close(peer)
        with contextlib.suppress(OSError):
            os.unlink(self.path)  # while we still answer: nobody else has bound it
        self._listener.close()
        self._selector.close()

    # --- connections ---

    def _accept(self) -> None:
        try:
            connection, _ = self._listener.accept()
        except OSError as error:
            logger.warning("a connection could not be accepted: %s", error)
            time.sleep(0.05)  # out of file descriptors: the listener stays readable
            return
        connection.setblocking(False)
        peer = _Peer(connection)
        self._peers.add(peer)
        self._selector.register(connection, selectors.EVENT_READ, peer)

    def _attend(self, peer: _Peer, events: int) -> None:
        try:
            if events & selectors.EVENT_WRITE and not peer.closed:
                self._flush(peer)
            if events & selectors.EVENT_READ and not peer.closed:
                self._read(peer)
        except _Malformed as error:
            logger.warning("a connection to the queue server was closed: %s", error)
            self._close(peer)
        except Exception:
            logger.exception("a connection to the queue server was closed after an error")
            self._close(peer)

    def _read(self, peer: _Peer) -> None:
        try:
            data = peer.connection.recv(_READ)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if not data:
            self._close(peer)
            return
        received = peer.received
        received += data
        if len(received) < LENGTH.size:
            return
        (length,) = LENGTH.unpack_from(received)
        if length > MAX_FRAME:
            raise _Malformed(f"a frame of {length} bytes is announced; {MAX_FRAME} is the limit")
        size = LENGTH.size + length
        if len(received) < size:
            return
        if len(received) > size or peer.parked is not None or peer.unsent:
            raise _Malformed("a second request came before the reply to the first")
        peer.received = bytearray()
        self._handle(peer, memoryview(received)[LENGTH.size :])

    def _close(self, peer: _Peer) -> None:
        """Forget the connection; what it did not get, or did not acknowledge, goes back."""
        if peer.closed:
            return
        peer.closed = True
        self._peers.discard(peer)
        self._selector.unregister(peer.connection)
        peer.connection.close()
        touched = []
        if peer.parked is not None:
            touched.append(peer.parked.queue)
            self._unpark(peer.parked)
        if peer.delivering is not None:
            queue, serials = peer.delivering
            peer.owed.setdefault(queue, set()).update(serials)
        for queue, owed in peer.owed.items():
            queue.store.give_back(owed)
            touched.append(queue)
        for queue in touched:
            self._match(queue)

    # --- requests ---

    def _handle(self, peer: _Peer, frame: memoryview) -> None:
        try:
            op, name_length, flag, number, seconds = REQUEST.unpack_from(frame)
            name = str(frame[REQUEST.size : REQUEST.size + name_length], "utf-8")
            body = bytes(frame[REQUEST.size + name_length :])
            op = Op(op)
            if not 0 <= seconds <= _MAX_SECONDS:
                raise ValueError(f"a wait of {seconds} s")
        except (struct.error, ValueError) as error:
            raise _Malformed(f"not a request: {error}") from error
        if op is Op.DEPTHS:
            depths = {name: len(queue.store) for name, queue in sorted(self._queues.items())}
            self._reply(peer, Status.OK, len(depths), encode_depths(depths))
            return
        queue = self._queues.get(name) or _Queue()
        if op is Op.PUT or seconds > 0:
            # who only looks leaves no queue behind: each worker looks for its orders
            self._queues[name] = queue
        if op is Op.PUT:
            self._park(_Parked(peer, queue, number, body), seconds)
        elif op is Op.GET:
            peer.late_ack = bool(flag)
            self._park(_Parked(peer, queue, number, None), seconds)
        elif op is Op.QSIZE:
            self._reply(peer, Status.OK, len(queue.store))
        elif op is Op.PURGE:
            self._reply(peer, Status.OK, queue.store.purge())
            self._match(queue)
        elif op is Op.ACK:
            self._ack(peer, queue, body)

    def _ack(self, peer: _Peer, queue: _Queue, body: bytes) -> None:
        if len(body) % 8:
            raise _Malformed("not a list of serials")
        owed = peer.owed.setdefault(queue, set())
        serials = owed.intersection(struct.unpack(f"!{len(body) // 8}Q", body))
        owed -= serials
        queue.store.ack(serials)
        self._reply(peer, Status.OK, len(serials))
        self._match(queue)

    def _park(self, parked: _Parked, seconds: float) -> None:
        """Queue the request; it is answered at once if it can be."""
        queue = parked.queue
        parked.peer.parked = parked
        (queue.getters if parked.body is None else queue.putters).append(parked)
        self._match(queue)
        if parked.peer.parked is parked:
            deadline = time.monotonic() + max(seconds, 0.0)
            heapq.heappush(self._deadlines, (deadline, next(self._order), parked))

    def _unpark(self, parked: _Parked) -> None:
        parked.peer.parked = None
        (parked.queue.getters if parked.body is None else parked.queue.putters).remove(parked)
        if parked.body is not None:
            parked.body = b""  # its deadline may keep it for a while

    def _match(self, queue: _Queue) -> None:
        """Serve those who wait for as long as there is a message or room."""
        store = queue.store
        while True:
            if queue.putters:
                parked = queue.putters[0]
                body = parked.body or b""
                if store.has_room(len(body), parked.number):
                    self._unpark(parked)
                    store.append(body)
                    self._reply(parked.peer, Status.OK)
                    continue
            if not queue.getters or not len(store):
                return
            parked = queue.getters[0]
            self._unpark(parked)
            self._deliver(parked.peer, queue, store.take(max(parked.number, 1)))

    def _deliver(self, peer: _Peer, queue: _Queue, entries: list[Entry]) -> None:
        peer.delivering = (queue, [entry.serial for entry in entries])
        parts = [part for serial, body in entries for part in (MESSAGE.pack(serial, len(body)), body)]
        self._reply(peer, Status.OK, len(entries), b"".join(parts))

    # --- replies ---

    def _reply(self, peer: _Peer, status: Status, count: int = 0, payload: bytes = b"") -> None:
        head = LENGTH.pack(REPLY.size + len(payload)) + REPLY.pack(status, count)
        peer.unsent.append(memoryview(head + payload))
        self._flush(peer)

    def _flush(self, peer: _Peer) -> None:
        waited = peer.connection
        try:
            while peer.unsent:
                sent = waited.send(peer.unsent[0])
                if sent < len(peer.unsent[0]):
                    peer.unsent[0] = peer.unsent[0][sent:]
                else:
                    peer.unsent.popleft()
        except BlockingIOError:
            self._selector.modify(waited, selectors.EVENT_READ | selectors.EVENT_WRITE, peer)
            return
        except OSError:
            self._close(peer)
            return
        self._selector.modify(waited, selectors.EVENT_READ, peer)
        if peer.delivering is not None:
            queue, serials = peer.delivering
            peer.delivering = None
            if peer.late_ack:
                peer.owed.setdefault(queue, set()).update(serials)
            else:
                queue.store.ack(serials)


def _listen(path: str) -> socket.socket:
    """A listening socket that nobody but this user can open, in place of one that a dead server left."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with address(path) as target:
            if os.path.lexists(path):
                if not stat.S_ISSOCK(os.lstat(path).st_mode):
                    raise RefusedToStart(
                        f"{path}: is there and is not a socket; move it away, or use another data folder"
                    )
                if _answers(target):
                    raise RefusedToStart(
                        f"{path}: another queue server answers there; stop it, or use another data folder"
                    )
                os.unlink(path)
            listener.bind(target)
            os.chmod(path, 0o600)  # before listen: until then nobody can connect
            listener.listen(128)
            listener.setblocking(False)
    except OSError as error:
        listener.close()
        raise RefusedToStart(f"{path}: the queue server cannot listen there: {error}") from error
    except BaseException:
        listener.close()
        raise
    return listener


def _answers(target: str) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1.0)
        try:
            probe.connect(target)
        except OSError:
            return False
    return True
