"""What is imported from ``pyspider.database``: its objects, on top of ours (behaviour D2, D12 to D15). For scripts and tools.

Projects and results can be read and written. Tasks can be read and entered; what becomes of them is the scheduler's to write.
"""

import re
import time
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any

import msgspec

from pyspider_lite import codec, database
from pyspider_lite.database.base import NewRow
from pyspider_lite.errors import ConfigError, DatabaseError
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import ResultRow, TaskResult
from pyspider_lite.models.task import NewTask, Task, TaskStatus

_TASK_COLUMNS = (
    *("taskid", "project", "url", "status", "schedule", "fetch", "process", "track", "lastcrawltime", "updatetime"),
)
_PROJECT_COLUMNS = ("name", "group", "status", "script", "comments", "rate", "burst", "updatetime")


def connect_database(url: str) -> Any:
    """The taskdb, projectdb or resultdb at ``url``, as ``sqlalchemy+mysql+resultdb://...`` (behaviour D1)."""
    kinds = {"taskdb": TaskDB, "projectdb": ProjectDB, "resultdb": ResultDB}
    kind = url.partition("://")[0].rpartition("+")[2]
    if kind not in kinds:
        raise ConfigError(
            f"{kind!r} is not the end of a database's scheme; it ends in +taskdb, +projectdb or +resultdb"
        )
    return kinds[kind](getattr(database, f"connect_{kind}")(url))


class _Adapter:
    """One of our databases with more methods; its own stay reachable."""

    def __init__(self, ours: Any) -> None:
        self._ours: Any = ours._ours if isinstance(ours, _Adapter) else ours

    def __getattr__(self, name: str) -> Any:
        if name == "_ours":
            raise AttributeError(name)
        return getattr(self._ours, name)

    def copy(self) -> Any:
        """The same with a connection of its own."""
        return type(self)(self._ours.copy())

    def close(self) -> None:
        """Give the connection back."""
        self._ours.close()


class TaskDB(_Adapter):
    """pyspider's taskdb."""

    ACTIVE, SUCCESS, FAILED, BAD = 1, 2, 3, 4

    @staticmethod
    def status_to_string(status: int) -> str:
        """The name of a status (behaviour S2)."""
        return TaskStatus(status).name if status in list(TaskStatus) else "UNKNOWN"

    @staticmethod
    def status_to_int(status: str) -> int:
        """The number of a status."""
        return int(TaskStatus.__members__.get(status, TaskStatus.BAD))

    @property
    def projects(self) -> set[str]:
        """The projects that have tasks."""
        found: set[str] = self._ours.projects()
        return found

    def load_tasks(
        self, status: int, project: str | None = None, fields: Iterable[str] | None = None
    ) -> Iterator[dict[str, Any]]:
        """All tasks in a status."""
        for name in sorted(self.projects) if project is None else [project]:
            after: int | None = None
            while page := self._ours.select(name, status=status, limit=1000, after=after):
                yield from (_chosen(_task(task), fields) for task in page)
                after = page[-1].seq

    def get_task(self, project: str, taskid: str, fields: Iterable[str] | None = None) -> dict[str, Any] | None:
        """One task, or None."""
        found = self._ours.get(project, [taskid])
        return _chosen(_task(found[0]), fields) if found else None

    def status_count(self, project: str) -> dict[int, int]:
        """Number of tasks by status."""
        counted: dict[int, int] = self._ours.status_count(project)
        return counted

    def insert(self, project: str, taskid: str, obj: dict[str, Any]) -> None:
        """Enter a new task; it waits until it is due. A taskid that exists is left as it is."""
        if obj.get("status", self.ACTIVE) != self.ACTIVE:
            raise DatabaseError(f"{project}:{taskid}: a task that was not crawled cannot have status {obj['status']}")
        schedule = dict(obj.get("schedule") or {})
        task = NewTask(
            taskid=taskid,
            project=project,
            url=obj["url"],
            schedule=schedule,
            fetch=dict(obj.get("fetch") or {}),
            process=dict(obj.get("process") or {}),
        )
        due, priority, now = schedule.get("exetime") or 0, schedule.get("priority") or 0, time.time()
        self._ours.open_project(project)
        with self._ours.begin(None) as transaction:
            transaction.insert(project, [NewRow(task=task, due=due, priority=int(priority), updatetime=now)])

    def update(self, project: str, taskid: str, obj: dict[str, Any] | None = None, **columns: Any) -> None:
        """Refused: the scheduler would not hear of it."""
        raise DatabaseError(
            "tasks are changed by the scheduler only: crawl again with force_update, or newtask over XML-RPC"
        )

    def drop(self, project: str) -> None:
        """Drop all tasks of a project."""
        self._ours.drop_project(project)


class ProjectDB(_Adapter):
    """pyspider's projectdb."""

    @staticmethod
    def split_group(group: str | None, lower: bool = True) -> list[str]:
        """The words of a group (behaviour S9)."""
        words = re.split(r"\W+", (group or "").lower() if lower else group or "")
        return [word for word in words if word]

    @staticmethod
    def verify_project_name(name: str) -> bool:
        """Whether it is of word characters, 64 at most."""
        return len(name) <= 64 and not re.search(r"[^\w]", name)

    def insert(self, name: str, obj: dict[str, Any] | None = None) -> None:
        """Store a new project."""
        given = {key: value for key, value in (obj or {}).items() if key in _PROJECT_COLUMNS and value is not None}
        self._ours.insert(Project(**{**given, "name": name}))

    def update(self, name: str, obj: dict[str, Any] | None = None, **columns: Any) -> int:
        """Change columns of a project; how many rows that were."""
        given = {**(obj or {}), **columns}
        return int(self._ours.update(name, **{key: given[key] for key in _PROJECT_COLUMNS[1:-1] if key in given}))

    def get_all(self, fields: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """All projects."""
        for head in self._ours.heads():
            if (found := self._ours.get(head.name)) is not None:
                yield _chosen(_project(found), fields)

    def get(self, name: str, fields: Iterable[str] | None = None) -> dict[str, Any] | None:
        """One project, or None."""
        found = self._ours.get(name)
        return None if found is None else _chosen(_project(found), fields)

    def check_update(self, timestamp: float, fields: Iterable[str] | None = None) -> Iterator[dict[str, Any]]:
        """The projects changed since then."""
        for row in self.get_all():
            if row["updatetime"] >= timestamp:
                yield _chosen(row, fields)

    def drop(self, name: str) -> None:
        """Drop a project's row."""
        self._ours.drop(name)


class ResultDB(_Adapter):
    """pyspider's resultdb."""

    @property
    def projects(self) -> set[str]:
        """The projects that have results."""
        found: set[str] = self._ours.projects()
        return found

    def save(self, project: str, taskid: str, url: str, result: Any) -> None:
        """Store the result of a task in place of the one it has."""
        run = max((row.run for row in self._ours.get(project, taskid)), default=0)
        items = [Item("", codec.to_json(result))]
        row = TaskResult(project=project, taskid=taskid, url=url, run=run, items=items, replace=True, complete=True)
        self._ours.store([row])

    def select(
        self, project: str, fields: Iterable[str] | None = None, offset: int = 0, limit: int | None = None
    ) -> Iterator[dict[str, Any]]:
        """Results, newest first."""
        for row in self._ours.select(project, offset=offset, limit=limit or None):
            yield _chosen(_result(row), fields)

    def count(self, project: str) -> int:
        """How many results."""
        return int(self._ours.count(project))

    def get(self, project: str, taskid: str, fields: Iterable[str] | None = None) -> Any:
        """The result of a task as pyspider had it: the last item; None if there is none."""
        rows = self._ours.get(project, taskid)
        return _chosen(_result(rows[-1]), fields) if rows else None

    def drop(self, project: str) -> None:
        """Drop the results of a project."""
        self._ours.drop(project, "")


def _chosen(row: dict[str, Any], fields: Iterable[str] | None) -> dict[str, Any]:
    return row if fields is None else {name: row[name] for name in fields if name in row}


def _task(task: Task) -> dict[str, Any]:
    return {name: getattr(task, name) for name in _TASK_COLUMNS}


def _project(project: Project) -> dict[str, Any]:
    row = msgspec.structs.asdict(project)
    return {name: row[name] for name in _PROJECT_COLUMNS}


def _result(row: ResultRow) -> dict[str, Any]:
    result = codec.from_json(row.result)
    return {"taskid": row.taskid, "url": row.url, "result": result, "updatetime": row.updatetime}


# --- the classes of the engines -----------------------------------------------------------------------------------------

_KINDS = {"TaskDB": "taskdb", "ProjectDB": "projectdb", "ResultDB": "resultdb"}


def _mysql(kind: str) -> Any:
    def connect(
        host: str = "localhost", port: int = 3306, database: str = kind, user: str = "root", passwd: str | None = None
    ) -> Any:
        login = user if passwd is None else f"{user}:{passwd}"
        return connect_database(f"mysql+{kind}://{login}@{host}:{port}/{database}")

    return connect


def _sqlalchemy(kind: str) -> Any:
    def connect(url: str) -> Any:
        scheme, _, rest = url.partition("://")
        return connect_database(f"sqlalchemy+{scheme}+{kind}://{rest}")

    return connect


def _sqlite(kind: str) -> Any:
    return lambda path: connect_database(f"sqlite+{kind}:///{path}")


#: what ``pyspider.database.ENGINE.taskdb`` and its likes have: called with the arguments of pyspider's classes
sqlite = SimpleNamespace(**{name: _sqlite(kind) for name, kind in _KINDS.items()})
mysql = SimpleNamespace(**{name: _mysql(kind) for name, kind in _KINDS.items()})
sqlalchemy = SimpleNamespace(**{name: _sqlalchemy(kind) for name, kind in _KINDS.items()})
local = SimpleNamespace(ProjectDB=lambda files: connect_database(f"local+projectdb://{','.join(files)}"))
