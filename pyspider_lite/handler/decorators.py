"""The decorators of a script's callbacks, and what the class reads back from them (behaviour H30 to H36).

They return the same function with an attribute, so they stack in any order.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, overload

F = TypeVar("F", bound=Callable[..., Any])


def config(_config: dict[str, Any] | None = None, **options: Any) -> Callable[[F], F]:
    """Default arguments for every ``self.crawl`` whose callback is this method: ``@config(age=3600)`` or ``@config({...})``."""

    def decorate(function: F) -> F:
        function._config = {**(_config or {}), **options}  # type: ignore[attr-defined]
        return function

    return decorate


@overload
def every(minutes: F) -> F: ...
@overload
def every(minutes: float | None = None, seconds: float | None = None) -> Callable[[F], F]: ...
def every(minutes: Any = None, seconds: float | None = None) -> Any:
    """Run the method by the clock, each ``minutes`` * 60 + ``seconds`` seconds; bare: each minute.

    Ticks are aligned to the Unix epoch, so ``@every(minutes=24 * 60)`` runs at midnight UTC (behaviour H33).
    """
    if callable(minutes):
        return every()(minutes)
    if minutes is None and seconds is None:
        minutes = 1
    interval = (minutes or 0) * 60 + (seconds or 0)
    if not math.isfinite(interval) or interval < 1 or interval != int(interval):
        raise ValueError(f"@every: the interval must be a whole number of seconds, 1 or more, not {interval}")

    def decorate(function: F) -> F:
        function._every = int(interval)  # type: ignore[attr-defined]
        return function

    return decorate


def catch_status_code_error(function: F) -> F:
    """Let the callback have responses that failed or have an error status, and 304, too (behaviour H35)."""
    function._catch_status_code_error = True  # type: ignore[attr-defined]
    return function


def not_send_status(function: F) -> F:
    """Leave the task as it is after this callback; its results and links are stored as usual (behaviour H35)."""
    function._not_send_status = True  # type: ignore[attr-defined]
    return function


def cron_jobs(handler: type) -> list[tuple[str, int]]:
    """Name and interval of each ``@every`` method, inherited ones first (behaviour H32; pyspider forgot the inherited)."""
    jobs: dict[str, int] = {}
    for owner in reversed(handler.__mro__):
        for name, value in vars(owner).items():
            interval = getattr(value, "_every", None)
            if interval is not None:
                jobs[name] = interval
            else:
                jobs.pop(name, None)  # overridden without @every
    return list(jobs.items())


def min_tick(handler: type) -> int:
    """Seconds between the ticks that the jobs need: the greatest common divisor of their intervals, 0 without jobs."""
    return math.gcd(*(interval for _, interval in cron_jobs(handler)))
