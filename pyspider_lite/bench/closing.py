"""What is started and ended by `with`: servers, suites, other crawlers."""

from typing import Self


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
