"""What becomes of a submission and of a report: pure functions from values and ``now`` to small frozen values.

Sources: behaviour S15 to S22 (submissions) and S40 to S45 (reports), with the FIX items mended. Every refusal has a reason, a
stable word that is counted and shown.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import astuple

from pyspider_lite.models.task import NewTask, TaskState, TaskStatus
from pyspider_lite.scheduler.blame import NOTHING, Toll

#: seconds before the first, second ... retry, and before all later ones (behaviour S42)
DEFAULT_RETRY_DELAY: dict[str, float] = {"0": 30, "1": 3600, "2": 6 * 3600, "3": 12 * 3600, "": 24 * 3600}
DEFAULT_RETRIES = 3
#: larger numbers in a schedule are taken for this one
MAX_PRIORITY = _MAX_INT = 2**31 - 1


class Schedule(Struct, frozen=True):
    """The schedule part of a task, checked and with its defaults (behaviour S3, H54)."""

    priority: int = 0
    retries: int = DEFAULT_RETRIES
    exetime: float = 0.0
    #: None: not given; negative: never crawl again
    age: float | None = None
    itag: Any = None
    force_update: bool = False
    auto_recrawl: bool = False
    cancel: bool = False
    #: retries used up so far
    retried: int = 0
    #: retries after a failure with this status, in place of ``retries``
    retry_status: dict[str, int] = {}

    def retries_after(self, status_code: Any, error_kind: Any = None) -> int:
        """How many retries there are for a page that failed with this status; none for a URL that nobody can fetch, as `mailto:a@b`."""
        if error_kind == "invalid-url":
            return 0
        return self.retry_status.get(str(status_code), self.retries)

    @property
    def periodic(self) -> bool:
        """It never ends by itself."""
        return self.auto_recrawl and self.age is not None and self.age >= 0


_DEFAULT = Schedule()


def read_schedule(raw: dict[str, Any]) -> Schedule:
    """A task's schedule as values; raises ValueError naming the key that is not what it must be."""
    if not raw:
        return _DEFAULT
    return Schedule(
        priority=int(_number(raw, "priority", 0)),
        retries=int(_number(raw, "retries", DEFAULT_RETRIES)),
        exetime=_number(raw, "exetime", 0),
        age=None if raw.get("age") is None else _number(raw, "age", -1),
        itag=raw.get("itag"),
        force_update=bool(raw.get("force_update")),
        auto_recrawl=bool(raw.get("auto_recrawl")),
        cancel=bool(raw.get("cancel")),
        retried=int(_number(raw, "retried", 0)),
        retry_status=_retry_status(raw.get("retry_status")) if raw.get("retry_status") else {},
    )


def read_stored(raw: dict[str, Any]) -> Schedule:
    """The same of a row: what makes no sense in it (another program or a hand wrote it) has its default. A task that is stored may not
    hold up the others that stand in a transaction with it."""
    try:
        return read_schedule(raw)
    except ValueError:
        return read_schedule({key: value for key, value in raw.items() if _makes_sense(key, value)})


def _makes_sense(key: str, value: Any) -> bool:
    try:
        read_schedule({key: value})
    except ValueError:
        return False
    return True


def _retry_status(value: Any) -> dict[str, int]:
    if not isinstance(value, dict):
        raise ValueError(f"schedule.retry_status is {value!r}, not a dict of status to number of retries")
    return {str(status): int(_number(value, status, DEFAULT_RETRIES)) for status in value}


def _number(raw: dict[str, Any], key: str, default: float) -> float:
    value = raw.get(key)
    if value is None:
        return default
    if isinstance(value, str):
        try:
            value = float(value)
        except ValueError:
            raise ValueError(f"schedule.{key} is {value!r}, not a number") from None
    if not isinstance(value, int | float) or value != value:
        raise ValueError(f"schedule.{key} is {value!r}, not a number")
    # infinities and numbers that no column holds are as good as the largest
    return value if key == "exetime" else max(-_MAX_INT, min(_MAX_INT, value))


# --- submissions --------------------------------------------------------------------------------------------------------


class Insert(Struct, frozen=True):
    """Nothing is stored of it: store it."""


class Restart(Struct, frozen=True):
    """It is stored and starts anew."""

    #: the next fetch sends no validators (UA11)
    unconditional: bool


class Postpone(Struct, frozen=True):
    """It is in flight: remember the restart until that run has ended (behaviour S21)."""


class Cancel(Struct, frozen=True):
    """Stop it: status BAD (behaviour S22)."""


class Ignore(Struct, frozen=True):
    """Nothing happens, for this reason."""

    reason: str
    #: FRESH: until when it is (Unix time)
    until: float | None = None


Decision = Insert | Restart | Postpone | Cancel | Ignore

#: reasons of `Ignore`
SEEN = "seen"
FRESH = "fresh"
SAME_ITAG = "same-itag"
ACTIVE = "active"
NOTHING_TO_CANCEL = "nothing-to-cancel"


def on_request(
    new: Schedule, stored: TaskState | None, *, now: float, in_flight: bool, overdue: bool = False
) -> Decision:
    """What becomes of a submission, given what is stored of its task (behaviour S15 to S22). ``overdue``: the age has passed by the
    count of the cron job that submits it, if not to the second (UA20).

    As in pyspider, a task that waits its turn is left alone unless forced; better than there, one that only waits for a retry
    may be restarted by age (UA20), a changed itag always restarts, and cancelling what is not there does nothing.
    """
    if stored is None:
        return Ignore(NOTHING_TO_CANCEL) if new.cancel else Insert()
    old = read_stored(stored.schedule)
    new_itag = bool(new.itag) and new.itag != old.itag
    stale = new.age is not None and new.age >= 0 and (overdue or (stored.lastcrawltime or 0) + new.age < now)
    if stored.status == TaskStatus.ACTIVE and not (
        new.force_update or new_itag or (stale and old.retried and not in_flight)
    ):
        return Ignore(ACTIVE)
    if not (new_itag or stale or new.force_update):
        return _why_not(new, old, stored.lastcrawltime or 0)
    if in_flight:
        return Postpone()
    if new.cancel:
        return Cancel()
    return Restart(unconditional=new.force_update or new_itag)


def _why_not(new: Schedule, old: Schedule, crawled: float) -> Ignore:
    if new.itag and new.itag == old.itag:
        return Ignore(SAME_ITAG)
    if new.age is not None and new.age >= 0:
        return Ignore(FRESH, until=crawled + new.age)
    return Ignore(SEEN)


def first_due(schedule: Schedule, now: float) -> float:
    """When a new or restarted task may run first."""
    return max(schedule.exetime, now) if schedule.exetime < float("inf") else 1e15


# --- reports ------------------------------------------------------------------------------------------------------------


#: a toll in a schedule
TOLL = ("deaths", "kills")


def toll(raw: dict[str, Any]) -> Toll:
    """What the run that is open has cost so far."""
    if "deaths" not in raw and "kills" not in raw:  # nearly always
        return NOTHING
    return Toll(*(value if isinstance(value := raw.get(name), int) and value > 0 else 0 for name in TOLL))


def with_toll(raw: dict[str, Any], spent: Toll) -> dict[str, Any]:
    """The same schedule with this toll; a run that ended has none."""
    if spent == NOTHING and "deaths" not in raw and "kills" not in raw:
        return raw
    numbers = {name: number for name, number in zip(TOLL, astuple(spent), strict=True) if number}
    return {key: value for key, value in raw.items() if key not in TOLL} | numbers


def anew(raw: dict[str, Any]) -> dict[str, Any]:
    """The schedule of a task that begins again with all its retries. A time that its submission chose stays; the one of a retry, which is
    kept in the same place, does not."""
    over = {"retried", "cancel", *TOLL, *(["exetime"] if read_stored(raw).retried else [])}
    return {key: value for key, value in raw.items() if key not in over}


class Ended(Struct, frozen=True):
    """How a run ends: the task's next state."""

    status: int
    #: when it runs next, None if it does not
    due: float | None
    schedule: dict[str, Any]
    #: counted under this name: success, retry or failed
    event: str


def on_success(raw: dict[str, Any], *, now: float) -> Ended:
    """A run went well (behaviour S41)."""
    schedule = read_stored(raw)
    if schedule.periodic and schedule.age is not None:
        fresh = {key: value for key, value in raw.items() if key not in ("retried", "force_update")}
        return Ended(TaskStatus.ACTIVE, now + schedule.age, fresh, "success")
    return Ended(TaskStatus.SUCCESS, None, raw, "success")


def on_failure(
    raw: dict[str, Any],
    retry_delay: dict[str, float],
    *,
    now: float,
    retry_after: float | None = None,
    status_code: Any = None,
    error_kind: Any = None,
) -> Ended:
    """A run failed (behaviour S42, S43). The delay is the handler's whatever the task's age is (X-S4 mended, UA21);
    ``retry_after`` seconds, asked for by the server, are the earliest next try; ``retry_status`` may give this status its own number of
    tries. ``error_kind``: why no page came (behaviour F40)."""
    schedule = read_stored(raw)
    table = retry_delay or DEFAULT_RETRY_DELAY
    delay = table.get(str(schedule.retried), table.get("", DEFAULT_RETRY_DELAY[""]))
    if schedule.periodic and schedule.age is not None:
        delay = min(delay, schedule.age) if delay >= 0 else schedule.age
    elif schedule.retried >= schedule.retries_after(status_code, error_kind) or delay < 0:
        return Ended(TaskStatus.FAILED, None, raw, "failed")
    due = now + max(delay, retry_after or 0)
    return Ended(TaskStatus.ACTIVE, due, {**raw, "retried": schedule.retried + 1, "exetime": due}, "retry")


#: retry delays with which a failure is the end
NO_RETRY = {"": -1.0}


def retry_delays(value: Any) -> dict[str, float]:
    """A Handler's ``retry_delay`` as text keys and numbers (behaviour H63); what is no number is left out. A list has the delays in
    their order, its last is for all later ones, too."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return {"": value}
    if isinstance(value, list) and value:
        value = {**dict(enumerate(value)), "": value[-1]}
    if not isinstance(value, dict):
        return {}
    return {str(key): delay for key, delay in value.items() if isinstance(delay, int | float)}


def capped(delays: dict[str, float], cap: float) -> dict[str, float]:
    """The retry delays with none above ``cap`` seconds: a crawl that somebody waits for does not wait for tomorrow."""
    table = {"": DEFAULT_RETRY_DELAY[""], **delays} if delays else DEFAULT_RETRY_DELAY
    return {key: min(delay, cap) for key, delay in table.items()}


def is_no_submission(task: NewTask) -> str | None:
    """Why this is no task at all (behaviour S5), or None if it is one."""
    for name in ("taskid", "project", "url"):
        if not getattr(task, name):
            return f"{name} is missing"
    try:
        read_schedule(task.schedule)
    except ValueError as error:
        return str(error)
    return None
