"""How log lines look and where they go. Called once a process, by bootstrap and by the command line.

Our own lines keep pyspider's format (behaviour C7). Passwords in URLs are masked in whatever is logged, by the formatter.
"""

import logging
import logging.config
import re
import sys
import time
from functools import lru_cache
from typing import TextIO

from pyspider_lite import old_names
from pyspider_lite.errors import ConfigError

#: user:password@ of a URL; host:8080/@name is none. A password may hold any character, the last @ ends it.
_CREDENTIALS = re.compile(r"(?P<head>[a-zA-Z][\w+.-]*://[^\s:/@'\"]*):(?!\d{1,5}(?:[/?#\s]|$))\S*@")
#: the same where all of the text is one URL; in those of files an @ or a colon says nothing
_SCHEME = re.compile(r"[a-zA-Z][\w+.-]*://")
_OF_FILES = re.compile(r"(?:(?:sqlalchemy\+)?sqlite|local\+|builtin:|memory:|(?:kombu\+)?redis\+socket:)")
_NO_PORT = re.compile(r"(?P<head>[^:/?#\[]*:)(?!\d{0,5}(?:[/?#;,]|$)).*", re.DOTALL)
#: a host has one colon: what stands after a second one, in any server of a list, may be a password of digits
_SECOND_COLON = re.compile(
    r"(?P<head>(?:^|[;,])(?:[a-zA-Z][\w+.-]*://)?+(?:\[[^\]]*\])?+[^:;,]*:[^:;,]*:)[^;,]+", re.DOTALL
)
#: brokers' URLs have it among the parameters too
_PARAMETER = re.compile(r"(?P<head>[?&;](?:password|passwd|pwd|secret)=)[^&;\s'\"]*", re.IGNORECASE)
#: what terminals act on, or show in another order than it is written: C0, DEL and C1, line separators, bidi overrides and isolates; and halves of
#: characters, which cannot be printed at all
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
_CONTROL_IN_LINES = re.compile(f"(?![\t\n]){_CONTROL.pattern}")
_COLOURS = {"D": "34", "I": "32", "W": "33", "E": "31", "C": "35"}
#: libraries that tell each step at INFO
_TALKATIVE = ("amqp", "kombu", "urllib3", "asyncio")


def printable(text: str, *, lines: bool = False) -> str:
    """``text`` for a terminal: control characters as \\uXXXX, which in JSON means the same; ``lines`` keeps newlines and tabs."""
    pattern = _CONTROL_IN_LINES if lines else _CONTROL
    return pattern.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def mask_url(text: str, *, alone: bool = False) -> str:
    """``text`` with the passwords of all URLs in it replaced by ***; ``alone`` says that it is one URL of a database or a queue,
    whose password may hold blanks or look like a port, and which may be written wrongly: then too much is masked, not too little."""
    if "=" in text:
        text = _PARAMETER.sub(r"\g<head>***", text)
    if alone:
        return _mask_one(text)
    return _CREDENTIALS.sub(r"\g<head>:***@", text) if "@" in text else text


def _mask_one(url: str) -> str:
    found = _SCHEME.match(url)
    scheme, rest = (found[0], url[found.end() :]) if found else ("", url)
    if rest.startswith("/") and _OF_FILES.match(scheme):
        return url
    login, at, place = rest.rpartition("@")
    if not at:
        if scheme and _NO_PORT.match(rest):
            return scheme + _NO_PORT.sub(r"\g<head>***", rest, count=1)
        # NAME:DIGITS alone is a host and its port, so a password of up to five digits after which nothing comes is shown
        return _SECOND_COLON.sub(r"\g<head>***", url)
    user, colon, _ = login.partition(":")
    if not scheme or "/" in user or "@" in user:
        return f"{scheme}***@{place}"
    if colon:
        return f"{scheme}{user}:***@{place}"
    # a database's user may need no password; anywhere else one word is the password without its colon
    return url if scheme.endswith("db://") else f"{scheme}***@{place}"


@lru_cache(maxsize=2)
def _stamp(second: int) -> str:
    return time.strftime("%y%m%d %H:%M:%S", time.localtime(second))


class LogFormatter(logging.Formatter):
    """``[I 261128 14:05:09 module:12] message``; what follows on further lines is indented by four spaces (behaviour C7)."""

    def __init__(self, color: bool | None = None, *args: object, **kwargs: object) -> None:
        super().__init__()
        self._colour = sys.stderr.isatty() if color is None else color

    def format(self, record: logging.LogRecord) -> str:
        """The record as text, passwords masked."""
        level = record.levelname[:1]
        head = f"[{level} {_stamp(int(record.created))} {record.module}:{record.lineno}]"
        if self._colour:
            head = f"\033[{_COLOURS.get(level, '0')}m{head}\033[0m"
        try:
            text = record.getMessage()
        except Exception as error:  # a wrong format string must not lose the line
            text = f"{record.msg!r} {record.args!r} ({error})"
        if record.exc_info and not record.exc_text:
            record.exc_text = self.formatException(record.exc_info)
        if record.exc_text:
            text = f"{text.rstrip()}\n{record.exc_text}"
        if not text.isprintable():  # most are
            text = printable(text, lines=True)
        return mask_url(f"{head} {text}".rstrip().replace("\n", "\n    "))


def setup(config_file: str = "", *, debug: bool = False, quiet: bool = False, stream: TextIO | None = None) -> None:
    """Log to stderr: INFO and above; with ``debug`` everything, with ``quiet`` from WARNING. ``config_file`` is an ini of
    logging.config.fileConfig that decides instead (behaviour C6); raises ConfigError if it is not usable."""
    if config_file:
        old_names.install()  # pyspider.libs.log.LogFormatter
        try:
            logging.config.fileConfig(config_file, disable_existing_loggers=False)
        except Exception as error:  # fileConfig raises whatever its classes do
            raise ConfigError(f"{config_file}: not usable as logging configuration: {error!r}") from error
        return
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(LogFormatter(color=(stream or sys.stderr).isatty()))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING if quiet else logging.DEBUG if debug else logging.INFO)
    for name in _TALKATIVE:
        logging.getLogger(name).setLevel(logging.DEBUG if debug else logging.WARNING)
    # a connection that is lost cannot be rolled back either: whoever used it says so
    logging.getLogger("sqlalchemy.pool").setLevel(logging.DEBUG if debug else logging.CRITICAL)
    logging.captureWarnings(True)
    # no line shows them, and to find them out costs as much as the rest of a short line
    logging.logThreads = logging.logMultiprocessing = logging.logProcesses = False
    if sys.version_info >= (3, 12):
        logging.logAsyncioTasks = False
