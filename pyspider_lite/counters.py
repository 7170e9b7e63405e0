"""How many of what happened in the last five minutes, hour, day and ever, by project (behaviour S70). Owned by the scheduler.

Windows slide in slots of fixed width. Time is an argument (seconds, of one clock); nothing here reads a clock or a file.
"""

from collections import deque
from typing import Any

#: window -> (seconds a slot, slots)
_WINDOWS = {"5m": (10, 30), "1h": (60, 60), "1d": (600, 144)}
_TIME_WINDOW = "5m_time"
_TOTALS = "all"

#: all windows in the order in which people read them (behaviour S87, W4)
WINDOWS = (_TIME_WINDOW, *_WINDOWS, _TOTALS)

#: names a project may have; what comes later counts as `_OTHER`
_MAX_NAMES = 100
_OTHER = "other"


class _Sliding:
    """Sum and count of what came within the last slots; only slots in which something came are kept."""

    __slots__ = ("_count", "_slots", "_sum", "_width", "_windows")

    def __init__(self, width: int, slots: int) -> None:
        self._width = width
        self._windows = slots
        #: [number of the slot, sum, count], oldest first
        self._slots: deque[list[float]] = deque()
        self._sum = 0.0
        self._count = 0.0

    def add(self, now: float, value: float) -> None:
        slot = now // self._width
        self._expire(slot)
        if self._slots and self._slots[-1][0] >= slot:  # a clock that was set back counts into the newest
            self._slots[-1][1] += value
            self._slots[-1][2] += 1
        else:
            self._slots.append([slot, value, 1])
        self._sum += value
        self._count += 1

    def read(self, now: float) -> tuple[float, float]:
        """Sum and count."""
        self._expire(now // self._width)
        return self._sum, self._count

    def _expire(self, slot: float) -> None:
        slots = self._slots
        while slots and slots[0][0] <= slot - self._windows:
            _, value, count = slots.popleft()
            self._sum -= value
            self._count -= count
        if not slots:
            self._sum = self._count = 0  # nothing is left of rounding

    def dump(self) -> list[list[float]]:
        return [list(slot) for slot in self._slots]

    def load(self, slots: list[list[float]]) -> None:
        self._slots = deque([float(number), value, count] for number, value, count in sorted(slots)[-self._windows :])
        self._sum = sum(slot[1] for slot in self._slots)
        self._count = sum(slot[2] for slot in self._slots)


class _Project:
    """The counters of one project: window -> name -> counter."""

    __slots__ = ("sliding", "totals")

    def __init__(self) -> None:
        self.sliding: dict[str, dict[str, _Sliding]] = {window: {} for window in (_TIME_WINDOW, *_WINDOWS)}
        self.totals: dict[str, int] = {}

    def counter(self, window: str, name: str) -> _Sliding:
        counters = self.sliding[window]
        counter = counters.get(name)
        if counter is None:
            counter = counters[name] = _Sliding(*_WINDOWS["5m" if window == _TIME_WINDOW else window])
        return counter


class Counters:
    """Counters of all projects, or of the first ``max_projects`` by name and of all others as "other". Used by one thread."""

    def __init__(self, max_projects: int | None = None) -> None:
        self._projects: dict[str, _Project] = {}
        self._max_projects = max_projects

    def event(self, now: float, project: str, name: str, n: int = 1) -> None:
        """``n`` more of ``name``: pending, success, retry, failed, or a reason."""
        counters = self._project(project)
        if name not in counters.totals and len(counters.totals) >= _MAX_NAMES:
            name = _OTHER
        counters.totals[name] = counters.totals.get(name, 0) + n
        for window in _WINDOWS:
            counters.counter(window, name).add(now, n)

    def time(self, now: float, project: str, name: str, seconds: float) -> None:
        """One duration of ``name`` (fetch_time, process_time) for the averages of 5m_time."""
        counters = self._project(project)
        if name in counters.sliding[_TIME_WINDOW] or len(counters.sliding[_TIME_WINDOW]) < _MAX_NAMES:
            counters.counter(_TIME_WINDOW, name).add(now, seconds)

    def get(self, now: float, window: str, *, average: bool | None = None) -> dict[str, dict[str, float]]:
        """{project: {name: number}}: sums or averages (unless told: averages for 5m_time only; of totals there is none). What is 0
        is left out. KeyError for an unknown window."""
        if window not in WINDOWS:
            raise KeyError(window)
        values = ((project, self._read(now, counters, window, average)) for project, counters in self._projects.items())
        return {project: names for project, names in values if names}

    def snapshot(self, now: float) -> dict[str, dict[str, dict[str, float]]]:
        """{project: {window: {name: number}}} with all windows (behaviour W4)."""
        return {
            project: {window: self._read(now, counters, window) for window in WINDOWS}
            for project, counters in self._projects.items()
        }

    def drop(self, project: str) -> None:
        """Forget a project (behaviour S80)."""
        self._projects.pop(project, None)

    def dump(self) -> dict[str, Any]:
        """Everything as JSON values, for `load`."""
        return {
            project: {
                _TOTALS: dict(counters.totals),
                **{
                    window: {name: counter.dump() for name, counter in names.items()}
                    for window, names in counters.sliding.items()
                },
            }
            for project, counters in self._projects.items()
        }

    def load(self, data: dict[str, Any]) -> None:
        """Replace everything by what `dump` gave. Raises ValueError, and changes nothing, for data of another shape."""
        projects: dict[str, _Project] = {}
        try:
            for project, windows in data.items():
                counters = projects[project] = _Project()
                counters.totals = {str(name): int(total) for name, total in windows[_TOTALS].items()}
                for window in counters.sliding:
                    for name, slots in windows[window].items():
                        counters.counter(window, name).load(slots)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            raise ValueError(f"these are no counters: {error!r}") from error
        self._projects = projects

    def _project(self, project: str) -> _Project:
        counters = self._projects.get(project)
        if counters is None and self._max_projects is not None and len(self._projects) >= self._max_projects:
            project = _OTHER
            counters = self._projects.get(project)
        if counters is None:
            counters = self._projects[project] = _Project()
        return counters

    def _read(self, now: float, counters: _Project, window: str, average: bool | None = None) -> dict[str, float]:
        if window == _TOTALS:
            return {name: total for name, total in counters.totals.items() if total}
        read = {name: counter.read(now) for name, counter in counters.sliding[window].items()}
        if average or (average is None and window == _TIME_WINDOW):
            return {name: total / count for name, (total, count) in read.items() if count}
        whole = float if window == _TIME_WINDOW else int
        return {name: whole(total) for name, (total, _) in read.items() if total}
