"""What a callback prints and logs, in order, bounded: the beginning and the end are kept (demand UA41)."""

import io
from collections.abc import Iterable
from typing import Any


class CapturedLog(io.TextIOBase):
    """A text stream that takes any amount and keeps at most ``limit`` characters. Stands in for sys.stdout."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self._half = max(1, limit // 2)
        self._head: list[str] = []
        self._head_size = 0
        self._tail: list[str] = []
        self._tail_size = 0
        self._left_out = 0

    @property
    def encoding(self) -> str:  # type: ignore[override]
        return "utf-8"

    @property
    def errors(self) -> str:  # type: ignore[override]
        return "backslashreplace"

    @property
    def buffer(self) -> "_Bytes":
        """For scripts that write bytes: ``sys.stdout.buffer.write``."""
        return _Bytes(self)

    def writable(self) -> bool:
        return True

    def write(self, text: str) -> int:
        """Append; str only, as with any text stream."""
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        size = len(text)
        room = self._half - self._head_size
        if room > 0:
            self._head.append(text[:room])
            self._head_size += min(size, room)
            text = text[room:]
        if text:
            self._left_out += max(0, len(text) - self._half)
            self._tail.append(text[-self._half :])
            self._tail_size += len(self._tail[-1])
            if self._tail_size > 2 * self._half or len(self._tail) > 4096:
                self._shorten()
        return size

    def writelines(self, lines: Iterable[Any]) -> None:
        for line in lines:
            self.write(line)

    def text(self) -> str:
        """What is kept; a line in the middle says how much is not."""
        if not self._tail:
            return "".join(self._head)
        self._shorten()
        gap = f"\n... {self._left_out} characters left out ...\n" if self._left_out else ""
        return f"{''.join(self._head)}{gap}{self._tail[0]}"

    def _shorten(self) -> None:
        tail = "".join(self._tail)
        self._left_out += max(0, len(tail) - self._half)
        self._tail = [tail[-self._half :]]
        self._tail_size = len(self._tail[0])


class _Bytes(io.RawIOBase):
    def __init__(self, log: CapturedLog) -> None:
        super().__init__()
        self._log = log

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        self._log.write(bytes(data).decode("utf-8", "backslashreplace"))
        return len(data)
