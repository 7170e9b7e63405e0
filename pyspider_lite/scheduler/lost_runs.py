"""What becomes of runs that nobody has any more, or that nobody can be given: they are given out again, or given up as failed, with a dead
letter that says why. Used by `scheduler`."""

import logging
import math
from collections.abc import Callable, Mapping

from pyspider_lite.counters import Counters
from pyspider_lite.models.control import Control
from pyspider_lite.models.names import CONTROL_RUN, RunKey
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import Report
from pyspider_lite.scheduler.backlog import Backlog
from pyspider_lite.scheduler.control_work import ControlWork
from pyspider_lite.scheduler.dead_letters import DeadLetters, letter_of_task
from pyspider_lite.scheduler.leases import POISON_AFTER, Leases, Lost
from pyspider_lite.scheduler.parts import Parts
from pyspider_lite.scheduler.project_state import ProjectRun

logger = logging.getLogger("scheduler")


class LostRuns:
    """Of one term of leadership; ``time()`` is that of the scheduler's step."""

    def __init__(
        self,
        projects: Mapping[str, ProjectRun],
        leases: Leases,
        control: ControlWork,
        parts: Parts,
        dead_letters: DeadLetters,
        backlog: Backlog,
        counters: Counters,
        time: Callable[[], float],
    ) -> None:
        self._projects = projects
        self._leases = leases
        self._control = control
        self._parts = parts
        self._dead_letters = dead_letters
        self._backlog = backlog
        self._counters = counters
        self._time = time

    def requeue(self, held_back: frozenset[str]) -> None:
        """What workers lost by now is given out again; ``held_back`` as in `Leases.check`."""
        for lost in self._leases.check(held_back):
            self._requeue(lost, self._time())

    def _requeue(self, lost: Lost, now: float) -> None:
        name, key, _ = lost.run
        self._parts.drop(lost.run)
        logger.info("%s:%s is given out again: %s", name, key, lost.reason)
        self._counters.event(now, name, "lost")
        project = self._projects.get(name)
        if project is not None and lost.deaths >= POISON_AFTER:
            self.give_up_deadly(lost.run, lost.deaths)
            return
        if self._control.requeue(lost.run) or project is None:
            return
        if lost.ticket is not None:
            project.window.add(lost.ticket, now)
        else:
            project.window.more, project.window.next_due = True, now
        project.wake_at = -math.inf

    def give_up_deadly(self, run: RunKey, deaths: int) -> None:
        """So many workers died over it."""
        project = self._projects.get(run[0])
        if project is not None:
            self._give_up(run, project.head.generation, f"{deaths} workers died over it")
            self._leases.blame.acquit(run[:2])

    def give_up_unsendable(self, task: Dispatch, reason: str) -> None:
        """It fits into no message."""
        logger.error("%s:%s cannot be given out: %s", task.project, task.taskid, reason)
        self._give_up(task.key, task.generation, f"cannot be given out: {reason}")

    def _give_up(self, run: RunKey, generation: str, reason: str) -> None:
        row = self._control.rows.get(run[1]) if run[2] == CONTROL_RUN else None
        self._backlog.batch.poisoned.append(_failed(run, generation, reason, row))
        self._dead_letters.keep(letter_of_task(run, reason, self._time(), row), self._backlog.batch.dead_letters)


def _failed(run: RunKey, generation: str, reason: str, row: Control | None) -> Report:
    """The report that nobody lived to write; ``row`` if it is on control work."""
    process = {"ok": False, "time": 0, "follows": 0, "result": None, "logs": reason, "exception": reason}
    return Report(
        project=run[0],
        taskid=row.task.taskid if row else run[1],
        url=row.task.url if row else "",
        run=run[2],
        generation=generation,
        control=row.id if row else "",
        ok=False,
        track={"fetch": {}, "process": process},
    )
