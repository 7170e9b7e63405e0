"""What is started and ended by `with`: servers, suites, other crawlers; on SIGTERM as well."""

import contextlib
import signal
import sys
from collections.abc import Iterator
from typing import Self

from pyspider_lite.exit_codes import TERMINATED


@contextlib.contextmanager
def ends_on_sigterm() -> Iterator[None]:
    """Within the block SIGTERM is an exit with its code, so that whatever was started is ended. For the main thread."""
    before = signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(TERMINATED))
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Closing:
    """What a `start` that fails in the middle has begun is ended as well."""

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> None:
        """At the beginning of the block."""
        raise NotImplementedError

    def close(self) -> None:
        """At its end."""
        raise NotImplementedError
