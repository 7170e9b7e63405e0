"""The contracts of the three databases. Batches are the interface: a method takes many rows of a project at once.

Every method raises DatabaseError when the database cannot be reached or refuses, DataError when a row cannot be stored.
Objects may be used by one thread; `copy` opens a second one for another thread. Reading an unknown project gives nothing
(behaviour D16). Project names were checked at the edge (models of names: word characters, at most 64).
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import Protocol

from msgspec import Struct

from pyspider_lite.models.control import Control, ControlHead
from pyspider_lite.models.letter import DeadLetter, LetterCount
from pyspider_lite.models.project import Project, ProjectHead, ProjectState
from pyspider_lite.models.result import ResultRow, TaskResult
from pyspider_lite.models.task import DueKey, NewTask, Task, TaskEnd, TaskPriority, TaskRestart, TaskState
from pyspider_lite.models.worker import WorkerRow


class Leader(Struct, frozen=True, kw_only=True):
    """The leader row."""

    epoch: int
    holder: str
    #: database time until which the holder leads unless it renews
    until: float
    #: address of the leader's RPC, "" if it has none
    rpc: str = ""


class NewRow(Struct, frozen=True, kw_only=True):
    """A task that is stored for the first time: ACTIVE, run 0."""

    task: NewTask
    due: float
    priority: int
    updatetime: float


class Refill(Struct, frozen=True, kw_only=True):
    """An answer of `TaskDB.refill`."""

    #: best first: priority downward, then due, then seq
    keys: list[DueKey]
    #: the earliest due time after ``now``, None if nothing waits
    next_due: float | None


class TaskTx(Protocol):
    """One transaction of the scheduler. All that is written in it is there together, or not at all."""

    def states(self, project: str, taskids: Iterable[str]) -> dict[str, TaskState]:
        """What is stored of these tasks, by taskid; unknown ones are absent."""
        ...

    def insert(self, project: str, rows: Sequence[NewRow]) -> None:
        """Store new tasks; a taskid that exists is left as it is."""
        ...

    def end(self, project: str, rows: Sequence[TaskEnd]) -> None:
        """Write how runs ended (pending is cleared)."""
        ...

    def restart(self, project: str, rows: Sequence[TaskRestart]) -> None:
        """Start stored tasks anew (pending is cleared; track and lastcrawltime stay)."""
        ...

    def postpone(self, project: str, rows: Sequence[NewTask]) -> None:
        """Remember restarts (column pending) of tasks in flight; the last one wins."""
        ...

    def set_priority(self, project: str, rows: Sequence[TaskPriority]) -> None:
        """Change the priority of stored tasks and nothing else, whatever they do."""
        ...

    def existing_controls(self, ids: Iterable[str]) -> set[str]:
        """Which of these control rows are still there."""
        ...

    def waiting_controls(self, project: str, generation: str, kinds: Iterable[str], limit: int) -> list[str]:
        """Ids of control rows of these kinds that wait for this project, at most ``limit``; rows without a generation are anyone's."""
        ...

    def controls(self, ids: Iterable[str]) -> list[Control]:
        """These control rows, in no order; those that cannot be read are left out."""
        ...

    def add_controls(self, rows: Sequence[Control]) -> None:
        """Enter control work; an id that exists is left as it is. ``seq`` is given by the database."""
        ...

    def mark_controls(self, rows: Sequence[Control]) -> None:
        """Write the tasks of these rows over those that are there; nothing else of a row changes."""
        ...

    def delete_controls(self, ids: Iterable[str]) -> None: ...

    def project_states(self, projects: Iterable[str]) -> dict[str, ProjectState]:
        """The rows of these projects, by name; unknown ones are absent."""
        ...

    def put_project_states(self, rows: Sequence[ProjectState]) -> None:
        """Write these rows over what is there."""
        ...

    def add_dead_letters(self, rows: Sequence[DeadLetter]) -> None: ...


class TaskDB(Protocol):
    """Tasks, control work, counts, dead letters, the leader row."""

    def begin(self, epoch: int | None) -> AbstractContextManager[TaskTx]:
        """A transaction: committed at the end of the block, rolled back if the block raises. It begins by reading the leader
        row for update and raises LostLeadership if the epoch is not ``epoch`` (None: whoever leads; for commands, which only
        enter keyed rows). Deadlocks, lock time-outs and lost connections raise DatabaseError: do the whole block again."""
        ...

    def open_project(self, project: str) -> None:
        """Create or complete the project's table, outside any transaction. Cheap when done before."""
        ...

    def projects(self) -> set[str]:
        """The projects that have a table."""
        ...

    def drop_project(self, project: str, epoch: int | None = None) -> None:
        """Drop the project's table, state row, dead letters, and its control rows but those that ask for its deletion. Raises
        LostLeadership as `begin` does."""
        ...

    def get(self, project: str, taskids: Iterable[str]) -> list[Task]:
        """Whole rows, in no order."""
        ...

    def select(
        self, project: str, *, status: int | None = None, limit: int = 100, after: int | None = None
    ) -> list[Task]:
        """Rows with the largest seq first; ``after`` is the seq of the last row of the page before."""
        ...

    def status_count(self, project: str) -> dict[int, int]:
        """Rows by status, counted (slow: for checks and tests)."""
        ...

    def refill(self, project: str, now: float, limit: int) -> Refill:
        """The best ``limit`` ACTIVE tasks that are due at ``now``, walking the priorities downward by index."""
        ...

    def controls(self, after: int, limit: int) -> list[Control]:
        """Control rows with seq > ``after``, in order of seq: none only if there are no more. Those that cannot be read are left out."""
        ...

    def control_heads(self, after: int, limit: int) -> list[ControlHead]:
        """What these rows are, with those that cannot be read."""
        ...

    def project_control_heads(
        self, project: str, generation: str, kind: str, after: int, limit: int
    ) -> list[ControlHead]:
        """The same of one project and kind; of this generation or of none."""
        ...

    def control_rows(self, ids: Iterable[str]) -> list[Control]:
        """These control rows, in order of seq; those that cannot be read are left out."""
        ...

    def project_states(self) -> dict[str, ProjectState]:
        """All state rows, by project."""
        ...

    def dead_letters(
        self,
        limit: int = 100,
        *,
        before: int | None = None,
        kind: str | None = None,
        project: str | None = None,
        with_payload: bool = True,
    ) -> list[DeadLetter]:
        """The newest first; ``before`` is the seq of the last one of the page before. Without payload that is b""."""
        ...

    def dead_letter(self, seq: int) -> DeadLetter | None:
        """The one with this id."""
        ...

    def drop_dead_letters(self, seqs: Iterable[int]) -> int:
        """Drop these; how many there were. Unknown ids are ignored."""
        ...

    def trim_dead_letters(self, rows: int, size: int, before: float) -> int:
        """Drop what is older than ``before``, and the oldest until at most ``rows`` are left, with payloads of at most ``size`` bytes in
        all; how many were dropped. In transactions of bounded size."""
        ...

    def count_dead_letters(self) -> list[LetterCount]:
        """How many there are, by project and kind."""
        ...

    def time(self) -> float:
        """The database's clock, Unix seconds."""
        ...

    def put_workers(self, rows: Sequence[WorkerRow]) -> None:
        """Write these rows of the list of workers over what is there; what their beats hold is left out."""
        ...

    def workers(self) -> list[WorkerRow]:
        """The whole list of workers, in no order."""
        ...

    def drop_workers(self, ids: Iterable[str]) -> None:
        """Take these off the list; unknown ids are ignored."""
        ...

    def leader(self) -> Leader | None:
        """The leader row as it stands (perhaps expired)."""
        ...

    def lead(
        self, holder: str, term: float, rpc: str, *, elected: bool = False, instead_of: Leader | None = None
    ) -> int | None:
        """Become leader for ``term`` seconds if nobody leads (or ``holder`` itself does): the new epoch, higher than any before, even if
        the leader row or the whole database was made anew since; else None. Who was ``elected`` elsewhere becomes leader in any case, and
        who leads ``instead_of`` another if the row is still that one's, with the same epoch and the same end of the term."""
        ...

    def renew(self, epoch: int, term: float) -> bool:
        """Lead on for ``term`` seconds; False if the epoch is no longer ours, or if the row is one that this object wrote before its last:
        then a copy of the database was put back, and what we believe of its tasks is wrong."""
        ...

    def resign(self, epoch: int) -> None:
        """End the term now, if it is still ours."""
        ...

    def copy(self) -> "TaskDB":
        """The same database with a connection of its own, for another thread."""
        ...

    def close(self) -> None: ...


class ProjectDB(Protocol):
    """Projects and their scripts (behaviour D13)."""

    def stamp(self) -> tuple[int, float]:
        """Changes whenever a row was added, changed or dropped (count, sum of the times): cheap to ask each second."""
        ...

    def heads(self) -> list[ProjectHead]:
        """All projects without their scripts."""
        ...

    def get(self, name: str) -> Project | None: ...

    def insert(self, project: Project) -> None:
        """Store a new project (updatetime is set to now, a generation is made if it has none); DataError if it exists."""
        ...

    def update(self, name: str, **fields: object) -> bool:
        """Change columns of a project, updatetime becomes now (and later than it was); False if there is none."""
        ...

    def drop(self, name: str, generation: str | None = None) -> None:
        """Drop a project's row; with a generation only if it has that one."""
        ...

    def copy(self) -> "ProjectDB": ...

    def close(self) -> None: ...


class ResultDB(Protocol):
    """Results, one row an item (behaviour D14; design, section 8)."""

    def store(self, results: Sequence[TaskResult], *, late: bool = False) -> None:
        """Upsert a batch in one transaction. A row is replaced only by the same or a later run; ``replace`` drops the task's
        items of earlier runs in the same transaction, with ``complete`` also those of the same run that are not in the batch;
        results of a generation that was dropped are ignored. A batch may hold several parts of one run.

        ``late``: the runs may have been given to others meanwhile, which may store theirs at the same moment: nobody else stores then."""
        ...

    def projects(self) -> set[str]: ...

    def select(self, project: str, *, offset: int = 0, limit: int | None = None) -> Iterator[ResultRow]:
        """Newest first (behaviour W53), streamed in pages: memory does not grow with the number of rows."""
        ...

    def count(self, project: str) -> int: ...

    def get(self, project: str, taskid: str) -> list[ResultRow]:
        """The items of one task, in the order they were stored."""
        ...

    def drop(self, project: str, generation: str) -> None:
        """Drop the project's results and remember that late ones of this generation are to be ignored."""
        ...

    def copy(self) -> "ResultDB": ...

    def close(self) -> None: ...
