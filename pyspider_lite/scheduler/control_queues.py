"""Control work in memory: of each project that is worked on a bounded piece, given out in turns; what is more stays in the table and is
read again. Pure; owned by `control_work`.
"""

from collections import deque
from collections.abc import Iterable

from pyspider_lite import codec
from pyspider_lite.models.control import Control, ControlHead, ControlKind

#: messages of a project that wait in memory at most, rows of all projects, and rows that a project may have whatever the others have
KEEP, MAX_ROWS, AT_LEAST = 500, 20_000, 20
#: bytes above which a row is large; bytes of large rows, and of others, above which no message comes in; bytes of large rows in flight
LARGE, MAX_BYTES, OUT_BYTES = 64 * 1024, 64 * 1024 * 1024, 24 * 1024 * 1024


class ControlQueues:
    """What is here of each project, and which projects have more in the table."""

    def __init__(self) -> None:
        #: rows known, by id: those that wait, and those in flight; changed by `put` and `drop`
        self.rows: dict[str, Control] = {}
        self._sizes: dict[str, int] = {}
        #: about what large rows take, and others: the large ones of some are not to hold up the messages of all
        self._bytes = {True: 0, False: 0}
        #: large rows in flight, or about to be
        self._out: set[str] = set()
        self._waiting: dict[str, deque[str]] = {}
        #: projects that have rows in the table only, and are not worked on; that includes names that nobody knows
        self._left: set[str] = set()
        #: projects that are worked on and have rows in the table only, who waited longest first, and how large the next row is
        self._more: dict[str, int] = {}

    # --- in ---------------------------------------------------------------------------------------------------------------

    def has_room(self, row: Control | ControlHead) -> bool:
        """It may come in. Messages are what comes in masses; of all else there is little, and it is not to wait behind them. For its info,
        which is one row, all of a project waits."""
        if row.kind == ControlKind.MESSAGE:
            return self._count_waiting(row.project) < self.most and self.room(self.size(row)) > 0
        if row.kind == ControlKind.INFO or len(self.rows) < MAX_ROWS:
            return True
        return self._count_waiting(row.project) < self.most

    def room(self, size: int) -> int:
        """Bytes left for rows that are large, or not, as one of this size; one row may go beyond."""
        return MAX_BYTES - self._bytes[size > LARGE]

    def size(self, row: Control | ControlHead) -> int:
        """About what it takes, bytes."""
        if row.id in self._sizes:
            return self._sizes[row.id]
        return row.size if isinstance(row, ControlHead) else len(codec.keepsake(row.task))

    def _count_waiting(self, project: str) -> int:
        return len(self._waiting.get(project, ()))

    @property
    def most(self) -> int:
        """Messages of a project that may wait here now."""
        return KEEP if len(self.rows) < MAX_ROWS else AT_LEAST

    def has_more(self, project: str) -> bool:
        """Some of its rows are in the table only, so a later message may not overtake them."""
        return project in self._more

    def put(self, row: Control, *, first: bool = False) -> None:
        """It waits for its turn; ``first`` before the others of its project."""
        self.rows[row.id] = row
        if row.id not in self._sizes:
            self._sizes[row.id] = size = self.size(row)
            self._bytes[size > LARGE] += size
        self._out.discard(row.id)
        queue = self._waiting.setdefault(row.project, deque())
        (queue.appendleft if first else queue.append)(row.id)

    def leave(self, project: str, *, active: bool, size: int = 0) -> None:
        """A row of it, of so many bytes, stays in the table, and is read when the project is worked on (``active``: as soon as there is
        room)."""
        if active:
            self._left.discard(project)
            self._more.setdefault(project, size)
        else:
            self._more.pop(project, None)
            self._left.add(project)

    def wake(self, project: str) -> None:
        """It is worked on from now on: what was left in the table may come in."""
        if project in self._left:
            self.leave(project, active=True)

    # --- out --------------------------------------------------------------------------------------------------------------

    def waiting(self) -> list[str]:
        """Projects with rows that wait, who waited longest first."""
        return list(self._waiting)

    def take(self, project: str) -> Control | None:
        """The next row of the project; None if none waits. One that ended meanwhile is left out."""
        queue = self._waiting.get(project, deque())
        while queue:
            row = self.rows.get(queue.popleft())
            if row is not None:
                if self._sizes[row.id] > LARGE:
                    self._out.add(row.id)
                return row
        self._waiting.pop(project, None)
        return None

    def served(self, projects: Iterable[str]) -> None:
        """These had their turn."""
        for name in projects:
            if name in self._waiting:
                self._waiting[name] = self._waiting.pop(name)

    def drop(self, row_id: str) -> None:
        """The row leaves memory; it ended, or stays in the table."""
        if self.rows.pop(row_id, None) is not None:
            size = self._sizes.pop(row_id)
            self._bytes[size > LARGE] -= size
            self._out.discard(row_id)

    @property
    def too_much_out(self) -> bool:
        """Large rows in flight, with the one that was taken last, are more than may be at once. One may always be."""
        return len(self._out) > 1 and sum(self._sizes[row_id] for row_id in self._out) > OUT_BYTES

    def take_all(self, project: str) -> list[Control]:
        """All rows of the project that wait; they stay in memory."""
        return [self.rows[row_id] for row_id in dict.fromkeys(self._waiting.pop(project, ())) if row_id in self.rows]

    def to_read(self, most: int) -> list[str]:
        """Projects whose rows in the table are wanted now, because there is room again; at most so many."""
        found: list[str] = []
        for name in self._more:
            if len(found) == most:
                break
            if self._count_waiting(name) < self.most // 2 and self.room(self._more[name]) > 0:
                found.append(name)
        return found

    def next_is(self, project: str, size: int) -> None:
        """The next of its rows in the table takes so many bytes."""
        self._more[project] = size

    def got_some(self, project: str) -> None:
        """Rows of it came in: now it is behind those that got nothing."""
        if project in self._more:
            self._more[project] = self._more.pop(project)

    def all_read(self, project: str) -> None:
        """Everything of it is here."""
        self._more.pop(project, None)

    @property
    def empty(self) -> bool:
        """Nothing is here, and nothing waits to be read."""
        return not self.rows and not self._more

    def forget(self, project: str) -> None:
        """The project was deleted with its rows."""
        for row_id in [row.id for row in self.rows.values() if row.project == project]:
            self.drop(row_id)
        self._waiting.pop(project, None)
        self._left.discard(project)
        self._more.pop(project, None)
