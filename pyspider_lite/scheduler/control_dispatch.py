"""How control work goes out: how much of it may, and in which batches. `control_work` chooses the rows."""

import math
from collections.abc import Iterable, KeysView
from typing import Any

from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.batch import PageBatch
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.scheduler import control, rules
from pyspider_lite.scheduler.apart import Gate
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.project_state import ProjectRun
from pyspider_lite.scheduler.sending import Outlet, Run, Sender

#: in flight at most, and in a batch
CONTROL_BUDGET = 500
CONTROL_BATCH = 20
#: of a project, for each processor
CONTROL_EACH = 10


class ControlDispatcher:
    """Gives control work out. ``cap``: seconds that one processor may hold a row at most."""

    def __init__(
        self, taskdb: TaskDB, leases: Leases, gate: Gate, sender: Sender, pages_out: Outlet, cap: float
    ) -> None:
        self._taskdb = taskdb
        self._leases = leases
        self._gate = gate
        self._sender = sender
        self._pages_out = pages_out
        self._cap = cap

    def in_flight(self) -> KeysView[tuple[str, str]]:
        """Projects and ids of control rows (and of tasks) in flight."""
        return self._leases.in_flight()

    def of(self, project: str) -> int:
        """Rows of a project in flight."""
        return self._leases.controls_of[project]

    def room(self) -> int:
        """Rows that may go out now."""
        return min(CONTROL_BUDGET - self._leases.controls, self._pages_out.room() * CONTROL_BATCH)

    def share(self, projects: int) -> int:
        """Rows that each of so many projects may have in flight: there is always room for one more project, and it does not wait for long
        behind those that are there."""
        return max(1, min(CONTROL_BUDGET // (projects + 1), CONTROL_EACH * self._sender.processors))

    def may_go(self, row: Control, now: float) -> bool:
        """Nothing else has to be over before."""
        return self._gate.control_may_go((row.project, row.id), now)

    def recall(self, row: Control) -> None:
        """Deaths that the row tells of."""
        self._leases.blame.recall((row.project, row.id), rules.toll(row.task.schedule))

    def dispatch(self, rows: Iterable[tuple[Control, ProjectRun]], now: float) -> None:
        """Give these rows out (the caller looked at `room` and `share`)."""
        stamp = self._sender.stamp(now)
        runs = [self._run(row, project, stamp) for row, project in rows]
        # so that all processors have some
        parts = max(1, min(self._sender.processors, self._pages_out.room()))
        size = max(1, min(CONTROL_BATCH, math.ceil(len(runs) / parts)))
        for start in range(0, len(runs), size):
            self._sender.send(QueueName.CONTROL, self._pages_out, runs[start : start + size], _message)

    def _run(self, row: Control, project: ProjectRun, stamp: int) -> Run[Page]:
        suspect = (row.project, row.id) in self._leases.blame.suspects
        page = control.page(row, project, self._track(row), stamp, suspect)
        return Run(page, page.task, self._cap)

    def _track(self, row: Control) -> dict[str, Any]:
        """on_start and on_finished are shown as tasks and keep their self.save, as tasks do (behaviour H60)."""
        if row.kind not in (ControlKind.START, ControlKind.FINISHED):
            return {}
        stored = self._taskdb.get(row.project, [row.task.taskid])
        return stored[0].track if stored else {}


def _message(batch: str, pages: list[Page]) -> PageBatch:
    return PageBatch(batch=batch, pages=pages)
