"""What scripts import from ``pyspider.libs.utils``: the part of it that is of use in a callback."""

import builtins
import signal
import socket
import sys
import threading
from collections.abc import Callable
from datetime import UTC, datetime
from importlib import import_module
from types import FrameType, TracebackType
from typing import Any

from pyspider_lite.codec import bytes_to_text, text_to_bytes
from pyspider_lite.handler.url import md5string

__all__ = [
    *("Get", "ListO", "ObjectDict", "ReadOnlyDict", "TimeoutError", "check_port_open", "decode_unicode_obj"),
    *("decode_unicode_string", "format_date", "get_python_console", "getitem", "hide_me", "load_object", "md5string"),
    *("pretty_unicode", "python_console", "run_in_subprocess", "run_in_thread", "text", "timeout", "unicode_obj"),
    *("unicode_string", "utf8"),
]


#: what a `timeout` block raises, and a callback that runs for too long
TimeoutError = builtins.TimeoutError


class timeout:
    """``with timeout(seconds):`` raises `TimeoutError` in the block; in other threads than the main one there is no limit.

    The processor's own limit uses the same timer: it goes on afterwards with what is left of it.
    """

    def __init__(self, seconds: float, error_message: str = "process timeout") -> None:
        self.seconds = seconds
        self.error_message = error_message
        self._before: tuple[Any, float] | None = None

    def __enter__(self) -> None:
        if self.seconds and threading.current_thread() is threading.main_thread():
            left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
            self._before = (signal.signal(signal.SIGALRM, self._raise), left)
            signal.setitimer(signal.ITIMER_REAL, min(self.seconds, left) if left else self.seconds)

    def _raise(self, number: int, frame: FrameType | None) -> None:
        raise TimeoutError(self.error_message)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._before is None:
            return
        unused, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        handler, left = self._before
        self._before = None
        signal.signal(signal.SIGALRM, handler)
        if left:
            used = min(self.seconds, left) - unused
            signal.setitimer(signal.ITIMER_REAL, max(left - used, 0.01))


class ListO:
    """A write-only file over a list."""

    def __init__(self, buffer: list[Any] | None = None) -> None:
        self._buffer = [] if buffer is None else buffer
        self.write = self._buffer.append
        self.writelines = self._buffer.extend

    def flush(self) -> None:
        """Nothing is held back."""

    def seek(self, position: int) -> None:
        """There is no position."""


class ObjectDict(dict[str, Any]):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


class ReadOnlyDict(dict[str, Any]):
    """A dict that refuses assignment."""

    def __setitem__(self, key: str, value: Any) -> None:
        raise Exception("dict is read-only")


def getitem(obj: Any, key: Any = 0, default: Any = None) -> Any:
    """``obj[key]``, or ``default`` if there is none."""
    try:
        return obj[key]
    except (KeyError, IndexError, TypeError):
        return default


def utf8(value: Any) -> bytes:
    """The value as bytes."""
    return value if isinstance(value, bytes) else str(value).encode()


def text(value: Any, encoding: str = "utf-8") -> str:
    """The value as str; bytes that are not text raise UnicodeDecodeError."""
    return value.decode(encoding) if isinstance(value, bytes) else str(value)


def pretty_unicode(value: Any) -> str:
    """The value as str, whatever it is."""
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else str(value)


def unicode_string(value: Any) -> str:
    """Bytes as text that `decode_unicode_string` turns back, whatever they are."""
    return bytes_to_text(value) if isinstance(value, bytes) else str(value)


def decode_unicode_string(value: str) -> str | bytes:
    """The opposite of `unicode_string`."""
    if not value.startswith("[BASE64-DATA]"):
        return value
    return text_to_bytes(value)


def decode_unicode_obj(value: Any) -> Any:
    """The value with all texts of `unicode_string` in it turned back."""
    if isinstance(value, dict):
        return {key: decode_unicode_obj(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [decode_unicode_obj(part) for part in value]
    return decode_unicode_string(value) if isinstance(value, str) else value


def unicode_obj(value: Any) -> Any:
    """The value with all bytes in it as str."""
    if isinstance(value, dict):
        return {pretty_unicode(key): unicode_obj(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [unicode_obj(part) for part in value]
    return pretty_unicode(value) if isinstance(value, bytes) else value


def run_in_thread(function: Callable[..., Any], *args: Any, **kwargs: Any) -> threading.Thread:
    """A daemon thread that runs the function."""
    thread = threading.Thread(target=function, args=args, kwargs=kwargs, daemon=True)
    thread.start()
    return thread


def load_object(name: str) -> Any:
    """The object behind ``package.module.name``."""
    module, dot, attribute = name.rpartition(".")
    if not dot:
        raise Exception("load object need module.object")
    return getattr(import_module(module), attribute)


def format_date(date: float) -> str:
    """A Unix time as ISO 8601 in UTC."""
    return datetime.fromtimestamp(date, UTC).isoformat(timespec="seconds")


class Get:
    """A class attribute that is worked out each time it is read."""

    def __init__(self, getter: Callable[[], Any]) -> None:
        self.getter = getter

    def __get__(self, instance: object, owner: type | None = None) -> Any:
        return self.getter()


def run_in_subprocess(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """A daemon process that runs the function."""
    import multiprocessing

    process = multiprocessing.Process(target=function, args=args, kwargs=kwargs, daemon=True)
    process.start()
    return process


def check_port_open(port: int, addr: str = "127.0.0.1") -> bool:
    """Whether somebody listens there."""
    with socket.socket() as probe:
        return probe.connect_ex((addr, port)) == 0


def hide_me(trace: TracebackType | None, names: dict[str, Any] | None = None) -> TracebackType | None:
    """The traceback without its first frames that have these globals."""
    step = trace
    while step is not None and step.tb_frame.f_globals is not names:
        step = step.tb_next
    while step is not None and step.tb_frame.f_globals is names:
        step = step.tb_next
    return step or trace


def get_python_console(namespace: dict[str, Any] | None = None) -> Any:
    """An interactive console over the namespace, the caller's if none is given."""
    import code

    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    return code.InteractiveConsole(namespace)


def python_console(namespace: dict[str, Any] | None = None) -> None:
    """Open an interactive console on the terminal, for scripts under `one` (behaviour H8)."""
    if namespace is None:
        caller = sys._getframe(1)
        namespace = {**caller.f_globals, **caller.f_locals}
    get_python_console(namespace).interact()
