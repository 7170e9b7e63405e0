"""Notices that nothing is given out although work is due, rate, pause and budget allow it, and workers are free; says which condition
holds it (design, promise 3). Pure. Used by `scheduler`, which looks and repairs.
"""

import enum
from collections.abc import Collection, Mapping, Sequence

from msgspec import Struct

#: seconds, in the clock of the leases, without anything given out
STILL = 30.0


class Repair(enum.Enum):
    """What may set the work going again."""

    #: look at the table anew for what is due of these projects
    WINDOW = "their tasks are looked up anew"
    #: take what nobody holds for lost
    LEASES = "they are given out again"
    #: somebody has to look after them
    WORKERS = "they are to be started, or freed"
    #: nothing that the scheduler can do
    NONE = "restart the scheduler if this goes on"


class Waiting(Struct, frozen=True):
    """A project with due tasks in the table that are not in flight, which rate, pause and its share allow to go."""

    name: str
    due: int
    #: keys that its window holds
    window: int
    #: seconds until it is looked at again, as the dispatcher has it
    sleeps: float


class Standing(Struct, frozen=True, kw_only=True):
    """How things stand."""

    waiting: Sequence[Waiting]
    in_flight: int
    #: how many may be
    budget: int
    #: runs that workers say they hold, and messages in the work queues
    held: int
    queued: int
    #: tasks that fetchers could take now
    free: int
    #: batches that the publisher takes now
    room: int
    #: roles of which no worker is heard, and for how many seconds
    silent: Mapping[str, float] = {}
    #: what workers say that they cannot reach
    away: Collection[str] = ()


class Hold(Struct, frozen=True):
    """What holds the work."""

    cause: str
    repair: Repair


class Watchdog:
    """Knows since when nothing was given out."""

    def __init__(self) -> None:
        self._sent = -1
        self._since = 0.0

    def barks(self, clock: float, sent: int) -> bool:
        """Whether ``sent``, the number of tasks given out, has stood still for so long that it is time to look; once in `STILL`."""
        if sent == self._sent and clock - self._since < STILL:
            return False
        still = sent == self._sent
        self._sent, self._since = sent, clock
        return still


def diagnose(standing: Standing) -> Hold | None:
    """None if it is right that nothing is given out."""
    if not standing.waiting or standing.free <= 0:
        return None
    due = sum(project.due for project in standing.waiting)
    what = f"tasks are due ({due} at least, of {_names(standing.waiting)}) and fetchers are free"
    hold = _find(standing, what)
    if not standing.silent:
        return hold
    silent = " and ".join(f"no {role} has beaten for {seconds:.0f} s" for role, seconds in standing.silent.items())
    why = "dead, stopped by a signal, or cut off: see their logs and `cluster list`"
    return Hold(f"{what}, but {silent} ({why})", hold.repair if hold else Repair.WORKERS)


def _find(standing: Standing, what: str) -> Hold | None:
    if standing.in_flight >= standing.budget:
        if standing.held or standing.queued:
            return None  # they work, or will
        cause = f"{what}, but {standing.in_flight} runs count as in flight that no worker holds and no queue has"
        return Hold(cause, Repair.LEASES)
    if standing.room <= 0:
        if standing.away:
            return None  # what comes after them is full, and they say why
        return Hold(f"{what}, but the publisher of scheduler2fetcher takes nothing", Repair.NONE)
    asleep = [project for project in standing.waiting if project.sleeps > 0]
    if asleep:
        longest = max(project.sleeps for project in asleep)
        return Hold(f"{what}, but {_names(asleep)} would be looked at only in {longest:.0f} s", Repair.WINDOW)
    empty = [project for project in standing.waiting if not project.window]
    if empty:
        return Hold(f"{what}, but the window in memory of {_names(empty)} is empty", Repair.WINDOW)
    return Hold(f"{what}, but nothing was given out for {STILL:.0f} s", Repair.WINDOW)


def _names(projects: Sequence[Waiting]) -> str:
    names = ", ".join(project.name for project in projects[:5])
    return names if len(projects) <= 5 else f"{names} and {len(projects) - 5} more"
