"""What is imported from ``pyspider.libs.log``: users' logging ini files name its formatter (behaviour C6)."""

import logging

from pyspider_lite.log import LogFormatter

__all__ = ["LogFormatter", "SaveLogHandler", "enable_pretty_logging"]


def enable_pretty_logging(logger: logging.Logger | None = None) -> None:
    """Have the logger (the root, if none is given) write to stderr in pyspider's form."""
    handler = logging.StreamHandler()
    handler.setFormatter(LogFormatter())
    (logger or logging.getLogger()).addHandler(handler)


class SaveLogHandler(logging.Handler):
    """Keeps records in a list."""

    def __init__(self, saveto: list[logging.LogRecord] | None = None) -> None:
        super().__init__()
        self.saveto = saveto

    def emit(self, record: logging.LogRecord) -> None:
        """Append it."""
        if self.saveto is not None:
            self.saveto.append(record)
