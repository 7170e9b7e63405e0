"""The decorators of a script's callbacks, and what the class reads back from them (behaviour H30 to H36).

They return the same function with an attribute, so they stack in any order.
"""

import math
from collections.abc import Callable
from typing import Any, TypeVar, overload

from msgspec.structs import replace

from pyspider_lite import cron as clock
from pyspider_lite.models.project import CronJob

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
def every(
    minutes: float | None = None,
    seconds: float | None = None,
    *,
    cron: str | None = None,
    tz: str = "UTC",
    max_instances: int | None = None,
    misfire_grace: float | None = None,
) -> Callable[[F], F]: ...
def every(
    minutes: Any = None,
    seconds: float | None = None,
    *,
    cron: str | None = None,
    tz: str = "UTC",
    max_instances: int | None = None,
    misfire_grace: float | None = None,
) -> Any:
    """Run the method by the clock, each ``minutes`` * 60 + ``seconds`` seconds; bare: each minute. Or as ``cron`` says, five fields as
    in a crontab, in the time zone ``tz``.

    Intervals are aligned to the Unix epoch, so ``@every(minutes=24 * 60)`` runs at midnight UTC (behaviour H33). ``max_instances``:
    ticks of the method that may wait or run at once (1 with ``cron``, else 10). ``misfire_grace``: seconds after which a tick that was
    missed is not made up for. ValueError and TypeError say what cannot be read.
    """
    if callable(minutes):
        return every()(minutes)
    job = CronJob(
        every=0 if cron is not None else _interval(minutes, seconds),
        cron=" ".join(cron.split()) if cron is not None else "",
        tz=tz,
        max_instances=(10 if cron is None else 1) if max_instances is None else max_instances,
        misfire_grace=misfire_grace,
    )
    _check(job, both=cron is not None and (minutes is not None or seconds is not None))

    def decorate(function: F) -> F:
        function._every = job  # type: ignore[attr-defined]
        return function

    return decorate


def _interval(minutes: float | None, seconds: float | None) -> int:
    if minutes is None and seconds is None:
        minutes = 1
    for name, value in (("minutes", minutes), ("seconds", seconds)):
        if not isinstance(value, int | float | None):
            raise TypeError(f"@every: {name} must be a number, not {value!r}")
    interval = (minutes or 0) * 60 + (seconds or 0)
    if not math.isfinite(interval) or interval < 1 or interval != int(interval):
        raise ValueError(f"@every: the interval must be a whole number of seconds, 1 or more, not {interval}")
    return int(interval)


def _check(job: CronJob, *, both: bool) -> None:
    if both:
        raise ValueError("@every: give minutes and seconds, or cron, not both")
    if not isinstance(job.max_instances, int) or job.max_instances < 1:
        raise ValueError(f"@every: max_instances must be a whole number, 1 or more, not {job.max_instances!r}")
    grace = job.misfire_grace
    if grace is not None and not (isinstance(grace, int | float) and 0 <= grace < math.inf):
        raise ValueError(f"@every: misfire_grace must be a number of seconds, 0 or more, not {grace!r}")
    if not job.every:
        try:
            clock.check(job)
        except ValueError as error:
            raise ValueError(f"@every: {error}") from None


def catch_status_code_error(function: F) -> F:
    """Let the callback have responses that failed or have an error status, and 304, too (behaviour H35)."""
    function._catch_status_code_error = True  # type: ignore[attr-defined]
    return function


def not_send_status(function: F) -> F:
    """Leave the task as it is after this callback; its results and links are stored as usual (behaviour H35)."""
    function._not_send_status = True  # type: ignore[attr-defined]
    return function


def jobs(handler: type) -> list[CronJob]:
    """Each ``@every`` method, inherited ones first (behaviour H32; pyspider forgot the inherited)."""
    found: dict[str, CronJob] = {}
    for owner in reversed(handler.__mro__):
        for name, value in vars(owner).items():
            job = getattr(value, "_every", None)
            if isinstance(job, CronJob):
                found[name] = replace(job, name=name)
            else:
                found.pop(name, None)  # overridden without @every
    return list(found.values())


def cron_jobs(handler: type) -> list[tuple[str, int]]:
    """Name and interval of each ``@every`` method that has an interval."""
    return [(job.name, job.every) for job in jobs(handler) if job.every]


def min_tick(handler: type) -> int:
    """Seconds between the ticks that the jobs need: the greatest common divisor of their intervals, 0 without jobs."""
    return math.gcd(*(job.every or 60 for job in jobs(handler)))
