"""When the jobs of ``@every`` run: pure functions over a `CronJob` and Unix seconds. Called by `handler` (which jobs a tick is for)
and by the scheduler (which ticks are due).

Expressions are read by cronsim: it is maintained, has types, no dependencies, and treats changes of the clocks as Debian's cron does
(croniter needs three packages for its dates, has no types, and repeats jobs when clocks go back). So a time of day that a change of
clocks leaves out runs right after the gap, one that comes twice runs the first time; a job of each hour, or of each minute, goes on in
even steps.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

from cronsim import CronSim, CronSimError

from pyspider_lite.models.project import CronJob

_FIELDS = "minute hour day-of-month month day-of-week"
_DAY = 86_400
#: a tick that runs within so many seconds is on time, however small its grace is
_PUNCTUAL = 2.0
#: how far `newest_tick` looks back, in steps: a job of each minute does not make it walk through a year
_LOOK_BACK = (3_600, _DAY, 32 * _DAY, 367 * _DAY, 9 * 367 * _DAY)


def check(job: CronJob) -> None:
    """ValueError, in a sentence, for a job that has no ticks: an expression or a time zone that cannot be read."""
    if job.every:
        if job.every < 1:
            raise ValueError(f"the interval must be a whole number of seconds, 1 or more, not {job.every}")
        return
    if len(job.cron.split()) != 5:
        raise ValueError(f"cron={job.cron!r} must have five fields: {_FIELDS}")
    try:
        zone = ZoneInfo(job.tz)
    except (ValueError, OSError, KeyError):
        raise ValueError(f"tz={job.tz!r} is no time zone; it must be a name like 'Asia/Shanghai' or 'UTC'") from None
    try:
        next(CronSim(job.cron, datetime.fromtimestamp(0, zone)))
    except CronSimError as error:
        raise ValueError(f"cron={job.cron!r} cannot be read: {error}; the fields are {_FIELDS}") from None
    except StopIteration:
        raise ValueError(f"cron={job.cron!r} never comes") from None


def next_tick(job: CronJob, after: float) -> float:
    """The first tick later than ``after``; ``inf`` if none comes."""
    return next(_ticks(job, int(after // 1)), float("inf"))


def newest_tick(job: CronJob, after: float, now: float) -> int | None:
    """The last tick that is later than ``after`` and not later than ``now``; None if there was none."""
    if not job.cron:
        tick = int(now // job.every * job.every)
        return tick if tick > after else None
    for span in _LOOK_BACK:
        start = max(int(after // 1), int(now // 1) - span)
        newest = None
        for tick in _ticks(job, start):
            if tick > now:
                break
            newest = tick
        if newest is not None or start <= after:
            return newest
    return None


def count(job: CronJob, after: float, until: float, most: int = 100) -> int:
    """How many ticks are later than ``after`` and not later than ``until``, counted up to ``most``."""
    counted = 0
    for tick in _ticks(job, int(after // 1)):
        if tick > until or counted >= most:
            break
        counted += 1
    return counted


def latest(job: CronJob, tick: int) -> float | None:
    """Until when the job may begin for this tick, by its ``misfire_grace``; None: at any time."""
    return None if job.misfire_grace is None else tick + max(job.misfire_grace, _PUNCTUAL)


def too_late(tick: float, now: float) -> str:
    """Why a tick does not run whose `latest` has passed."""
    return f"it is {now - tick:.0f} s late, more than its misfire_grace"


def due(jobs: Iterable[CronJob], last: float, now: float) -> list[tuple[int, CronJob]]:
    """What is to run now (behaviour H33, S60): for each job its newest tick after ``last``, oldest first. So what was missed while
    nothing ran is made up for once, not tick by tick (X-S21 mended)."""
    found = ((newest_tick(job, last, now), job) for job in jobs)
    return sorted(((tick, job) for tick, job in found if tick is not None), key=lambda pair: pair[0])


def next_of(jobs: Iterable[CronJob], after: float) -> float:
    """When the next tick of any job comes, ``inf`` if none does."""
    return min((next_tick(job, after) for job in jobs), default=float("inf"))


def is_tick(job: CronJob, second: int) -> bool:
    """Whether the job runs at this second."""
    return next_tick(job, second - 1) == second


def overdue(job: CronJob, tick: int, crawled: float, age: float) -> bool:
    """Whether a page crawled at ``crawled`` is older than ``age`` for what the job enters at ``tick``. Counted from tick to tick: a page
    that its last tick crawled some seconds late is a period old at the next one, so age = period skips none (UA20)."""
    before = newest_tick(job, crawled - _LOOK_BACK[-1], crawled)
    return (crawled if before is None else before) + age <= tick


def _ticks(job: CronJob, after: int) -> Iterator[int]:
    """All ticks later than ``after``, in order."""
    if not job.cron:
        tick = after - after % job.every
        while True:
            tick += job.every
            yield tick
    last = after
    # cronsim compares with UTC itself, and is faster there
    zone = UTC if job.tz == "UTC" else ZoneInfo(job.tz)
    for moment in CronSim(job.cron, datetime.fromtimestamp(after, zone)):
        tick = int(moment.timestamp())
        # an hour that comes twice: what ran in the first does not run in the second
        if tick > last:
            yield tick
            last = tick
