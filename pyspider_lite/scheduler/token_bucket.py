"""Rate and burst of one project (behaviour S31), as a token bucket that loses nothing to the length of a loop. Pure.

What a step of the scheduler takes must not cost tokens (UA26): a bucket keeps what comes in in so long, also if the burst is smaller. For
rates of up to 30 a second that is no more than the usual burst of 3. A bucket starts full: the first task of a new project does not wait (S32 mended). Rate 0, or a burst below 1, selects nothing.
"""

import math

#: seconds that a step of the scheduler may take
_STEP = 0.1


class TokenBucket:
    """``rate`` tokens a second, at most ``burst`` of them kept, or what comes in in a step; both may be ``inf``."""

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = burst
        self._tokens = burst
        self._at = now

    @property
    def never(self) -> bool:
        """Nothing will ever be selected."""
        return self._rate <= 0 or self._burst < 1

    def set(self, rate: float, burst: float, now: float) -> None:
        """Another rate from now on; tokens at hand stay, as far as the new burst allows."""
        self._accrue(now)
        was_closed = self.never
        self._rate, self._burst = rate, burst
        self._tokens = burst if was_closed or math.isnan(self._tokens) else min(self._tokens, burst)

    def available(self, now: float) -> float:
        """Tasks that may go now (``inf`` if unlimited)."""
        if self.never:
            return 0
        if math.isinf(self._rate):
            return math.inf
        self._accrue(now)
        return math.floor(self._tokens) if not math.isinf(self._tokens) else math.inf

    def take(self, count: int) -> None:
        """``count`` tasks went (after `available` said so)."""
        if not math.isinf(self._rate):
            self._tokens -= count

    def next_at(self, now: float) -> float:
        """When the next task may go: ``now`` if one may go already, ``inf`` if never."""
        if self.never:
            return math.inf
        if self.available(now) >= 1:
            return now
        # a little later than exact: floating point must not make the loop wake up just before the token is whole
        return now + (1 - self._tokens) / self._rate + 1e-4

    def _accrue(self, now: float) -> None:
        if now > self._at:
            if not math.isinf(self._rate):
                kept = max(self._burst, self._rate * _STEP)
                self._tokens = min(kept, self._tokens + (now - self._at) * self._rate)
            self._at = now
        elif now < self._at:  # the clock was set back: count from there
            self._at = now
