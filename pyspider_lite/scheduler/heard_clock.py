"""The time of `leases`: seconds in which the scheduler kept up with ``status_queue``. Pure.

Only they count, so that an outage or a stall of ours is nobody's death.
"""

#: a longer gap between two calls of `advance` counts as this much
_MAX_ADVANCE = 1.0


class HeardClock:
    """Seconds since the beginning, in ``seconds``."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self._wall: float | None = None

    def advance(self, now: float, *, drained: bool) -> None:
        """Time went by. ``drained``: everything that workers said until now has been heard; only then the time since the last such call
        counts. With hundreds of workers it takes several calls to hear what they said in the time of one."""
        if self._wall is None or drained or now < self._wall:
            if self._wall is not None:
                self.seconds += max(0.0, min(now - self._wall, _MAX_ADVANCE))
            self._wall = now

    def begin_anew(self) -> None:
        """What goes by until the next `advance` does not count."""
        self._wall = None
