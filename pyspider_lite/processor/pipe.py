"""What a processor and its child say to each other: msgpack frames over a socket pair, each after its length.

The parent sends a `Page` and gets `Done`; in between the child may ask for scripts (`NeedScript`, answered by `Script`).
Nothing that arrives is executed by being read: only the child runs code, and only a project's script.
"""

import socket
import struct
from typing import TypeVar

from msgspec import Struct

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.models import Page, Project, Report

T = TypeVar("T")

_LENGTH = struct.Struct("<I")
#: a frame is never larger: a page has at most a decoded body of 32 MiB
MAX_FRAME = 128 * 1024 * 1024


class Run(Struct, frozen=True, tag="run"):
    """Parent to child: run the callback of this page."""

    page: Page
    #: seconds after which TimeoutError is raised inside the callback; 0 for never
    limit: float


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


ToChild = Run | Script
ToParent = NeedScript | Done


class Channel:
    """Whole frames over one end of a stream socket; used by one thread."""

    def __init__(self, sock: socket.socket) -> None:
        self.sock = sock

    def send(self, message: Struct) -> int:
        """The size of what was sent. Raises OSError when the other side is gone or does not read within the socket's time-out."""
        body = codec.pack(message)
        self.sock.sendall(_LENGTH.pack(len(body)) + body)
        return len(body)

    def receive(self, kind: type[T]) -> tuple[T, int]:
        """One message and its size; EOFError when the other side closed, OSError when it stalls, BrokenMessage when it babbles."""
        (size,) = _LENGTH.unpack(self._read(_LENGTH.size))
        if size > MAX_FRAME:
            raise BrokenMessage(f"a frame of {size} bytes")
        return codec.unpack(self._read(size), kind), size

    def _read(self, size: int) -> bytes:
        data = self.sock.recv(size)
        if len(data) == size:
            return data
        parts = bytearray(data)
        while len(parts) < size:
            if not data:
                raise EOFError("the other side is gone")
            data = self.sock.recv(min(size - len(parts), 1 << 20))
            parts += data
        return bytes(parts)
