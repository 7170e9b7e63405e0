"""The client of the built-in queue server (`builtin_server`), and the wire format that both speak over a unix socket.

Every frame begins with its length (4 bytes, of what follows). A request is op, length of the queue's name, flag, number,
seconds, name, body; a reply is status, count, and for each message its serial, length and body. One request waits at a time.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from enum import IntEnum

import msgspec

from pyspider_lite import codec
from pyspider_lite.errors import ConfigError, MessageTooLarge, QueueError, QueueFull
from pyspider_lite.message_queue.base import Received

#: no frame is larger
MAX_FRAME = 16 * 1024 * 1024

LENGTH = struct.Struct("!I")
#: op, length of the name, flag (1: keep until acknowledged), number (maxsize of a put, limit of a get), seconds to wait
REQUEST = struct.Struct("!BBBId")
#: status, count
REPLY = struct.Struct("!BI")
#: serial, length
MESSAGE = struct.Struct("!QI")

#: what a unix socket's address holds (sun_path, without its final zero)
_MAX_PATH = 107
#: no wait is longer
_MAX_WAIT = 3600.0
#: seconds that the server may take beyond the deadline it was given
_GRACE = 5.0


class Op(IntEnum):
    """What a request asks for."""

    PUT = 1
    GET = 2
    ACK = 3
    QSIZE = 4
    PURGE = 5
    DEPTHS = 6


class Status(IntEnum):
    """What a reply says."""

    OK = 0
    FULL = 1


@contextmanager
def address(path: str) -> Iterator[str]:
    """``path`` as an address to bind or connect to; one too long for a unix socket is reached through its folder's descriptor."""
    if len(os.fsencode(path)) <= _MAX_PATH:
        yield path
        return
    folder, base = os.path.split(path)
    if not os.path.isdir("/proc/self/fd") or len(os.fsencode(base)) > _MAX_PATH - 30:
        raise ConfigError(
            f"{path}: a unix socket's path has at most {_MAX_PATH} bytes; use a shorter folder for the data"
        )
    descriptor = os.open(folder or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{base}"
    finally:
        os.close(descriptor)


class BuiltinQueue:
    """One queue of the server at ``path``. Connects when used; after an error the next call connects anew."""

    shown = ""
    patience = 0.0

    def __init__(self, path: str, name: str, *, maxsize: int = 100, late_ack: bool = False) -> None:
        self.name = name
        self._path = path
        self._maxsize = maxsize
        self._late_ack = late_ack
        self._socket: socket.socket | None = None
        self._connection = 0

    def put(self, body: bytes, timeout: float) -> None:
        """See the contract."""
        if len(body) > codec.MAX_ENCODED:
            raise MessageTooLarge(
                f"{self.name}: a message of {len(body)} bytes is over the limit of {codec.MAX_ENCODED}"
            )
        status, _, _ = self._ask(Op.PUT, number=self._maxsize, seconds=timeout, body=body)
        if status == Status.FULL:
            raise QueueFull(f"{self.name}: no room within {timeout:g} s")

    def get(self, limit: int, timeout: float) -> list[Received]:
        """See the contract."""
        _, count, payload = self._ask(Op.GET, flag=int(self._late_ack), number=limit, seconds=timeout)
        received = []
        at = 0
        for _ in range(count):
            serial, length = MESSAGE.unpack_from(payload, at)
            at += MESSAGE.size
            tag = (self._connection, serial) if self._late_ack else None
            received.append(Received(bytes(payload[at : at + length]), tag))
            at += length
        return received

    def wake(self) -> None:
        """It waits for moments only."""

    def ack(self, received: Sequence[Received]) -> None:
        """See the contract. What an earlier connection took is ignored: it has come back already."""
        serials = [
            message.tag[1]
            for message in received
            if isinstance(message.tag, tuple) and self._socket is not None and message.tag[0] == self._connection
        ]
        if serials:
            self._ask(Op.ACK, body=struct.pack(f"!{len(serials)}Q", *serials))

    def qsize(self) -> int:
        """See the contract."""
        return self._ask(Op.QSIZE)[1]

    def purge(self) -> int:
        """See the contract."""
        return self._ask(Op.PURGE)[1]

    def depths(self) -> dict[str, int]:
        """How many messages wait in each queue of the server. Raises QueueError."""
        return codec.unpack(bytes(self._ask(Op.DEPTHS)[2]), dict[str, int])

    def close(self) -> None:
        """See the contract."""
        connection, self._socket = self._socket, None
        if connection is not None:
            connection.close()

    def _ask(
        self, op: Op, *, flag: int = 0, number: int = 0, seconds: float = 0.0, body: bytes = b""
    ) -> tuple[int, int, memoryview]:
        """Status, count and payload of the reply."""
        seconds = min(max(seconds, 0.0), _MAX_WAIT)
        name = self.name.encode()
        request = REQUEST.pack(op, len(name), flag, number, seconds)
        length = LENGTH.pack(len(request) + len(name) + len(body))
        deadline = time.monotonic() + seconds + _GRACE
        try:
            connection = self._connect()
            connection.settimeout(seconds + _GRACE)
            _send(connection, b"".join((length, request, name)), body)
            (size,) = LENGTH.unpack(_receive(connection, LENGTH.size, deadline))
            if size > MAX_FRAME:
                raise OSError(f"a reply of {size} bytes")
            reply = _receive(connection, size, deadline)
            status, count = REPLY.unpack_from(reply)
        except (OSError, struct.error) as error:
            self.close()
            raise QueueError(f"the built-in queue server at {self._path} cannot be reached: {error}") from error
        return status, count, reply[REPLY.size :]

    def _connect(self) -> socket.socket:
        if self._socket is None:
            connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                with address(self._path) as target:
                    connection.settimeout(_GRACE)
                    connection.connect(target)
            except BaseException:
                connection.close()
                raise
            self._socket = connection
            self._connection += 1
        return self._socket


def _send(connection: socket.socket, head: bytes, body: bytes) -> None:
    """Both parts, without copying a large body."""
    sent = connection.sendmsg((head, body))
    if sent < len(head):
        connection.sendall(head[sent:])
        sent = len(head)
    if sent < len(head) + len(body):
        connection.sendall(memoryview(body)[sent - len(head) :])


def _receive(connection: socket.socket, size: int, deadline: float) -> memoryview:
    buffer = memoryview(bytearray(size))
    at = 0
    while at < size:
        count = connection.recv_into(buffer[at:])
        if not count:
            raise OSError("it closed the connection")
        at += count
        if at < size and time.monotonic() > deadline:
            raise OSError("it is too slow")
    return buffer


def encode_depths(depths: dict[str, int]) -> bytes:
    """The payload of a DEPTHS reply."""
    return msgspec.msgpack.encode(depths)
