"""What a processor and its child say to each other: msgpack frames over a socket pair, each after its length.

The parent sends pages (`Run`) and gets `Done` for each; in between the child may ask for scripts (`NeedScript`, answered by `Script`),
and of a callback with very many links it sends the first ones while it runs (`Part`): the parent takes them when it has time.
Each `Done` is on the socket when the next page begins, so that what becomes of the child spoils no page but the one it runs. The
parent is woken, by a byte on a pipe, for many of them at once: a switch between two processes costs as much as a quick page.
Nothing that arrives is executed by being read: only the child runs code, and only a project's script.
"""

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.models.page import Page
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
#: a frame is never larger: a page has at most a decoded body of 32 MiB
MAX_FRAME = 128 * 1024 * 1024
#: bytes read at once, and how often, however much there is
_CHUNK, _CHUNKS = 1 << 20, 64


class Job(Struct, frozen=True, array_like=True):
    """A page whose callback is to be run."""

    page: Page
    #: seconds after which TimeoutError is raised inside the callback; 0 for never
    limit: float


class Run(Struct, frozen=True, tag="run"):
    """Parent to child: run the first page, and the others in their order as far as they begin before ``until``."""

    jobs: list[Job]
    #: time.monotonic() of this machine
    until: float


class Script(Struct, frozen=True, tag="script"):
    """Parent to child: the answer to `NeedScript`."""

    #: md5 of the script; equal to ``known`` of the question when nothing changed (then there is no project)
    md5: str = ""
    #: None when there is no such project, or nothing changed
    project: Project | None = None


class NeedScript(Struct, frozen=True, tag="need"):
    """Child to parent: send the script of this project."""

    project: str
    #: the version wanted, "" for the newest
    md5: str = ""
    #: the version that the child has, "" if none
    known: str = ""


class Done(Struct, frozen=True, tag="done"):
    """Child to parent: the parts of the report on the page, in their order."""

    reports: list[Report]
    #: the next page begins now; else it waits for the next `Run`
    more: bool = False


class Part(Struct, frozen=True, tag="part"):
    """Child to parent: parts of the report on the page that still runs."""

    reports: list[Report]


ToChild = Run | Script
ToParent = NeedScript | Part | Done


class Channel:
    """Whole frames over one end of a stream socket; used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock
        self._begun = bytearray()

    def send(self, message: Struct, wake: Callable[[], None] | None = None) -> int:
        """The size of what was sent. Where the other side has to read first, ``wake`` tells it so. Raises OSError when it is gone or
        does not read within the socket's time-out."""
        body = codec.pack(message)
        frame = _LENGTH.pack(len(body)) + body
        if wake is None:
            self.sock.sendall(frame)
            return len(body)
        sent = 0
        with contextlib.suppress(BlockingIOError):
            sent = self.sock.send(frame, socket.MSG_DONTWAIT)
        if sent < len(frame):
            wake()
            self.sock.sendall(memoryview(frame)[sent:])
        return len(body)

    def receive(self, kind: type[T]) -> T:
        """One message; EOFError when the other side closed, OSError when it stalls, BrokenMessage when it babbles."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        return codec.unpack(self._read(_sane(size)), kind)

    def _read(self, size: int) -> bytes:
        data = self.sock.recv(size)
        if len(data) == size:
            return data
        parts = bytearray(data)
        while len(parts) < size:
            if not data:
                raise EOFError("the other side is gone")
            data = self.sock.recv(min(size - len(parts), _CHUNK))
            parts += data
        return bytes(parts)

    # --- for who does not wait ---

    @property
    def in_frame(self) -> bool:
        """Something of a message has come, and not all of it."""
        return bool(self._begun)

    def arrived(self, kind: type[T]) -> list[tuple[T, int]]:
        """The messages that are there, each with its size; the errors are those of `receive`, after all that came before them. The
        socket has a time-out, or does not block."""
        messages: list[tuple[T, int]] = []
        try:
            self._take_whole(kind, messages)  # what cannot be read is still there
            for _ in range(_CHUNKS):
                data = os.read(self.sock.fileno(), _CHUNK)
                if not data:
                    raise EOFError("the other side is gone")
                self._begun += data
                self._take_whole(kind, messages)
        except BlockingIOError:
            pass
        except (OSError, EOFError, BrokenMessage):
            # who asks next meets it again
            if not messages:
                raise
        return messages

    def _take_whole(self, kind: type[T], into: list[tuple[T, int]]) -> None:
        start, length = 0, _LENGTH.size
        try:
            while len(self._begun) >= start + length:
                (size,) = _LENGTH.unpack_from(self._begun, start)
                end = start + length + _sane(size)
                if len(self._begun) < end:
                    break
                into.append((codec.unpack(bytes(self._begun[start + length : end]), kind), size))
                start = end
        finally:
            del self._begun[:start]


def _sane(size: int) -> int:
    if size > MAX_FRAME:
        raise BrokenMessage(f"a frame of {size} bytes")
    return size
