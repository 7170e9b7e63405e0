"""A scheduler on real databases, with the fetchers and processors played by the test. The clock is counted."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from msgspec import Raw

from pyspider_lite import codec
from pyspider_lite.database import connect_projectdb, connect_resultdb, connect_taskdb
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, StatusBatch, StatusItem, TaskBatch
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import CONTROL_RUN, QueueName, Role, RunKey
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, Task, TaskStatus
from pyspider_lite.models.worker import Beat, Claim
from pyspider_lite.scheduler.inbox import Depths, Heard
from pyspider_lite.scheduler.scheduler import Options, Scheduler

INFO: dict[str, Any] = {"crawl_config": {}, "retry_delay": {}, "cron": []}


class Outlet:
    """A publisher that keeps what it is given."""

    def __init__(self) -> None:
        self.bodies: list[tuple[str, bytes]] = []
        self.space = 1_000

    def room(self) -> int:
        return self.space - len(self.bodies)

    def put(self, batch: str, body: bytes) -> None:
        self.bodies.append((batch, body))


class Away:
    """A taskdb without which nothing can be written while it is ``away``."""

    def __init__(self, taskdb: Any) -> None:
        self._taskdb = taskdb
        self.away = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._taskdb, name)

    def begin(self, epoch: int | None) -> Any:
        if self.away:
            raise DatabaseError("away")
        return self._taskdb.begin(epoch)


class Crawl:
    """The scheduler, its databases, its queues and its clock."""

    def __init__(
        self, folder: Path, options: Options | None = None, wrap: Callable[[Any], Any] = lambda db: db
    ) -> None:
        self.taskdb = connect_taskdb(f"sqlite+taskdb:///{folder}/task.db")
        self.projectdb = connect_projectdb(f"sqlite+projectdb:///{folder}/project.db")
        self.resultdb = connect_resultdb(f"sqlite+resultdb:///{folder}/result.db")
        self.wrapped = wrap(self.taskdb)
        self.options = options or Options()
        # projects are stamped with the real time; only deletion compares it with this clock
        self.now = self.taskdb.time()
        self.acked = 0
        self.pages: dict[str, Callable[[Dispatch], Report]] = {}
        self.info: dict[str, dict[str, Any]] = {}
        #: what was given out, in order
        self.given: list[Dispatch] = []
        self.worker = "w1"
        self.lead()

    def lead(self) -> Scheduler:
        """A new leader on the same files."""
        epoch = self.taskdb.lead(f"holder{self.now}-{id(object())}", 0.0, "")
        assert epoch is not None
        self.tasks_out, self.pages_out = Outlet(), Outlet()
        self.scheduler = Scheduler(
            taskdb=self.wrapped,
            projectdb=self.projectdb,
            resultdb=self.resultdb,
            epoch=epoch,
            tasks_out=self.tasks_out,
            pages_out=self.pages_out,
            now=self.now,
            options=self.options,
        )
        return self.scheduler

    def close(self) -> None:
        for database in (self.taskdb, self.projectdb, self.resultdb):
            database.close()

    # --- what users do ------------------------------------------------------------------------------------------------

    def project(self, name: str = "p", **fields: Any) -> str:
        """A project that is running; its generation."""
        fields = {"status": "RUNNING", "rate": 1e6, "burst": 1e6, "script": "v1", **fields}
        self.projectdb.insert(Project(name=name, **fields))
        self.scheduler.update_projects()
        return self.look(name).generation

    def look(self, name: str = "p") -> Project:
        project = self.projectdb.get(name)
        assert project is not None
        return project

    def change(self, name: str, **fields: Any) -> None:
        assert self.projectdb.update(name, **fields)
        self.scheduler.update_projects()

    def start(self, name: str = "p", run: str = "1") -> None:
        """What the Run button and `one` enter."""
        task = NewTask("on_start", name, "data:,on_start", process={"callback": "on_start"})
        row = Control(
            id=f"start:{name}:{run}",
            project=name,
            kind=ControlKind.START,
            generation=self.look(name).generation,
            task=task,
        )
        with self.taskdb.begin(None) as tx:
            tx.add_controls([row])
        self.scheduler.update_projects()

    # --- the loop -----------------------------------------------------------------------------------------------------

    def step(self, *items: StatusItem, after: float = 0.1, **heard: Any) -> float:
        """One step, ``after`` seconds later, in which these items are heard."""
        self.now += after
        status = [StatusBatch(items=list(items))] if items else []
        return self.scheduler.step(self.now, Heard(status=status, **heard))

    def ready(self, *names: str) -> None:
        """Steps until the projects' scripts have said what they say of themselves."""
        self.step()
        self.step(*[self.answer(task) for task in self.controls()])
        for name in names:
            assert self.scheduler.projects[name].info is not None

    def submit(self, *tasks: NewTask, after: float = 0.1) -> float:
        """Tasks on newtask_queue."""
        return self.step(after=after, new=[(NewTaskBatch(tasks=[raw(task) for task in tasks]), self.ack)])

    def ack(self) -> None:
        self.acked += 1

    def one_task(self, **schedule: Any) -> Dispatch:
        """A project with one task that was given out."""
        self.project()
        self.ready("p")
        self.submit(new("t", schedule=schedule))
        (task,) = self.tasks()
        return task

    # --- what workers do ----------------------------------------------------------------------------------------------

    def tasks(self) -> list[Dispatch]:
        """What was given out to fetchers since the last look."""
        bodies, self.tasks_out.bodies = self.tasks_out.bodies, []
        tasks = [task for _, body in bodies for task in codec.decode(body, TaskBatch).tasks]
        self.given += tasks
        return tasks

    def batches(self) -> list[TaskBatch]:
        bodies, self.tasks_out.bodies = self.tasks_out.bodies, []
        batches = [codec.decode(body, TaskBatch) for _, body in bodies]
        self.given += [task for batch in batches for task in batch.tasks]
        return batches

    def controls(self) -> list[Dispatch]:
        """What was given out to processors directly."""
        bodies, self.pages_out.bodies = self.pages_out.bodies, []
        tasks = [page.task for _, body in bodies for page in codec.decode(body, PageBatch).pages]
        self.given += tasks
        return tasks

    def answer(self, task: Dispatch) -> Report:
        """What the processor reports on this run: `pages` says, by url or callback; else success without links."""
        callback = str(task.process.get("callback", ""))
        if callback == "_on_get_info":
            return done(task, info=self.info.get(task.project, INFO))
        page = self.pages.get(task.url) or self.pages.get(f"{task.project}:{callback}") or self.pages.get(callback)
        return page(task) if page else done(task)

    def crawl(self, seconds: float = 10.0, step: float = 0.1, batch: int = 1_000) -> None:
        """Workers that answer everything they get, for this long."""
        for _ in range(round(seconds / step)):
            given = [*self.controls(), *self.tasks()]
            for start in range(0, len(given), batch):
                self.step(*[self.answer(task) for task in given[start : start + batch]], after=0)
            self.step(after=step)

    # --- what came of it ----------------------------------------------------------------------------------------------

    def task(self, taskid: str, project: str = "p") -> Task:
        (task,) = self.taskdb.get(project, [taskid])
        return task

    def callbacks(self, project: str = "p") -> list[str]:
        """The callbacks of the control work that was given out."""
        return [str(task.process.get("callback")) for task in self.given if task.control and task.project == project]

    def events(self, name: str, project: str = "p") -> float:
        return self.scheduler.counters.get(self.now, "1h").get(project, {}).get(name, 0)

    def check(self) -> None:
        """What must hold at every moment: the counts are those of the rows, and the leases those counted."""
        scheduler = self.scheduler
        rows = self.taskdb.project_states()
        for name, project in scheduler.projects.items():
            counted = self.taskdb.status_count(name)
            state = project.counts
            kept = {
                TaskStatus.ACTIVE: state.active,
                TaskStatus.SUCCESS: state.success,
                TaskStatus.FAILED: state.failed,
                TaskStatus.BAD: state.bad,
            }
            assert {status: count for status, count in kept.items() if count} == counted, name
            if name in rows:
                assert rows[name] == state, name
            else:
                assert not counted
            leased = [key for key, is_task in self.leased().items() if is_task and key[0] == name]
            assert scheduler.leases.tasks[name] == len(leased), name
        tasks = sum(self.leased().values())
        assert scheduler.leases.tasks.total() == tasks
        assert scheduler.leases.controls == len(scheduler.leases) - tasks

    def leased(self) -> dict[tuple[str, str], bool]:
        """Everything in flight, and whether it is a task."""
        leases = self.scheduler.leases
        return {key: leases.run_of(*key) != CONTROL_RUN for key in set(leases.in_flight())}


# --- messages ----------------------------------------------------------------------------------------------------------


def raw(task: NewTask) -> Raw:
    return Raw(codec.pack(task))


def new(taskid: str, project: str = "p", **fields: Any) -> NewTask:
    """A submission."""
    return NewTask(taskid, project, f"http://x/{taskid}", **fields)


def done(task: Dispatch, ok: bool = True, **fields: Any) -> Report:
    """The report of a run."""
    fields.setdefault(
        "track",
        {"fetch": {"ok": True, "time": 0.1, "status_code": 200}, "process": {"ok": ok, "time": 0.2, "follows": 0}},
    )
    return Report.of(
        task,
        ok=ok,
        **fields,
    )


def links(*taskids: str, **schedule: Any) -> Callable[[Dispatch], Report]:
    """A page with these links."""
    return lambda task: done(
        task, follows=[new(taskid, task.project, generation=task.generation, schedule=schedule) for taskid in taskids]
    )


def fails(task: Dispatch) -> Report:
    return done(task, ok=False)


def beat(worker: str = "w1", role: str = Role.FETCHER, pool: int = 100, **fields: Any) -> Beat:
    return Beat(worker=worker, role=role, host="h", pid=1, pool_size=pool, **fields)


def claim(batch: TaskBatch, worker: str = "w1") -> Claim:
    return Claim(worker=worker, queue=QueueName.TO_FETCHER, batch=batch.batch, runs=runs(batch.tasks))


def runs(tasks: Iterable[Dispatch]) -> list[RunKey]:
    return [task.key for task in tasks]


def empty(asked: float, queue: str = QueueName.TO_FETCHER) -> Depths:
    return Depths(asked, {queue: 0})
