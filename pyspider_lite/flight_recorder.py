"""What a processor had begun, in a file that outlives it: a script that kills the scheduler with its processor leaves nobody who could say
what was run.

Each processor has a file in a folder of this machine, and its lock as long as it lives. It writes there before callbacks begin; the
kernel has that whatever becomes of the process. A scheduler that begins to lead reads what the dead left (`scheduler/deaths.py`).
"""

import contextlib
import fcntl
import logging
import os
import time
from collections.abc import Iterator
from pathlib import Path

from msgspec import Struct

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.models.names import RunKey

logger = logging.getLogger(__name__)

#: seconds after which nobody will read the file of a dead processor any more: its death was counted, or no scheduler is on this machine
_OLD = 3600.0
#: bytes of the number before what is written
_SIZE = 4


class Begun(Struct, frozen=True):
    """What ran in a processor, or may have: it knows of quick pages only when some of them are over."""

    runs: list[RunKey] = []


class FlightRecorder:
    """The file of one processor. A folder that cannot be written costs the counting of some deaths, and no crawl."""

    def __init__(self, folder: str, worker: str) -> None:
        self._path = os.path.join(folder, worker)
        self._last = Begun()
        self._file: int | None = None
        try:
            os.makedirs(folder, exist_ok=True)
            _sweep(folder)
            self._file = os.open(f"{self._path}.new", os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._file, fcntl.LOCK_EX)
            # locked before it has its name: whoever finds one that is not takes its processor for dead
            os.rename(f"{self._path}.new", self._path)
        except OSError as error:
            self._failed(error)

    def note(self, begun: Begun) -> None:
        """This is begun next, and nothing else runs."""
        if self._file is None or begun == self._last:
            return
        body = codec.pack(begun)
        try:
            os.pwrite(self._file, len(body).to_bytes(_SIZE, "big") + body, 0)
            self._last = begun
        except OSError as error:
            self._failed(error)

    def close(self) -> None:
        """Nothing runs any more."""
        if self._file is not None:
            with contextlib.suppress(OSError):
                os.unlink(self._path)
            os.close(self._file)
            self._file = None

    def _failed(self, error: OSError) -> None:
        logger.warning("%s cannot be written (%s): who kills all processes here is not found out", self._path, error)
        self.close()


def left_behind(folder: str) -> dict[str, Begun]:
    """What processors that are dead had begun, by the name of their file."""
    found = {}
    for path in _files(folder):
        with _if_dead(path) as file:
            if file is not None:
                found[path.name] = _read(file)
    return found


def forget(folder: str, worker: str) -> None:
    """The death of this processor was counted. It keeps its file if it lives."""
    path = Path(folder, worker)
    with _if_dead(path) as file, contextlib.suppress(OSError):
        if file is not None:
            # first what is always allowed: a death must not be counted again
            os.ftruncate(file, 0)
            path.unlink(missing_ok=True)


def _read(file: int) -> Begun:
    data = os.read(file, 1 << 24)
    size = int.from_bytes(data[:_SIZE], "big")
    try:
        return codec.unpack(data[_SIZE : _SIZE + size], Begun) if size else Begun()
    except BrokenMessage:
        # the machine lost its power while it was written
        return Begun()


def _files(folder: str) -> list[Path]:
    try:
        return sorted(path for path in Path(folder).iterdir() if path.suffix != ".new")
    except OSError:
        return []


@contextlib.contextmanager
def _if_dead(path: Path) -> Iterator[int | None]:
    """The file, if there is one, we may write it, and nobody has its lock."""
    try:
        file = os.open(path, os.O_RDWR)
    except OSError:
        yield None
        return
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        dead = True
    except OSError:
        dead = False
    try:
        yield file if dead else None
    finally:
        os.close(file)


def _sweep(folder: str) -> None:
    for path in _files(folder):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > _OLD:
                forget(folder, path.name)
