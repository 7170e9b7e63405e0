"""Deaths of workers over tasks and control work, for longer than one leader lives: they are kept in the rows (``deaths`` in the schedule),
written when one is counted and gone when the run ends. `leases` counts the deaths that this leader sees; here are those that it finds.

Who kills all that runs on a machine, the scheduler with it, is known from what the processors left behind (`flight_recorder`). One run
that was all they had begun has killed them. Otherwise it may have been any of them, or none: what ran at several such kills goes out alone
(`apart`), until it is over. Used by `scheduler`.
"""

import logging
from collections.abc import Callable, Mapping

from pyspider_lite.database.base import TaskDB
from pyspider_lite.flight_recorder import Begun
from pyspider_lite.models.control import Control
from pyspider_lite.models.names import CONTROL_RUN, RunKey
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.leases import POISON_AFTER, Leases

logger = logging.getLogger("scheduler")


class Deaths:
    """Brings memory and rows together."""

    def __init__(self, taskdb: TaskDB, leases: Leases, controls: Mapping[str, Control]) -> None:
        self._taskdb = taskdb
        self._leases = leases
        self._controls = controls
        self._left: dict[str, Begun] = {}
        self._forget: Callable[[str], None] = lambda name: None

    def found(self, left: dict[str, Begun], forget: Callable[[str], None]) -> None:
        """Processors, by their worker's name, died with the leader before us. ``forget(name)`` is called once that is in the rows."""
        self._left, self._forget = left, forget
        self._leases.died_before(left)

    def look(self, batch: Batch, give_up: Callable[[RunKey, int], None]) -> None:
        """What is new goes into the batch. Raises DatabaseError: then nothing was done, and it is done by the next call."""
        if self._left:
            self._count(batch, give_up)
        for key in self._leases.blame.take_counted():
            batch.tolls[key] = self._leases.blame.tolls.get(key, NOTHING)

    def _count(self, batch: Batch, give_up: Callable[[RunKey, int], None]) -> None:
        # what is over by now has killed nobody
        runs = [run for begun in self._left.values() for run in begun.runs if self._is_open(run)]
        guilty = runs[0] if len(runs) == 1 else None
        for run in runs:
            self._leases.blame.count_kill(run[:2])
        if guilty is not None:
            logger.warning("%s:%s: all that ran here died while it ran", *guilty[:2])
            deaths = self._leases.blame.count(guilty[:2])
            if deaths >= POISON_AFTER:
                give_up(guilty, deaths)
        elif runs:
            logger.warning("%d tasks were run when all that ran here died; they have to wait for a moment", len(runs))
        names, self._left = list(self._left), {}

        def written(_: object) -> None:
            for name in names:
                self._forget(name)

        batch.then.append(written)

    def _is_open(self, run: RunKey) -> bool:
        """It is still to be done; what its row says of deaths is known from now on."""
        name, key, number = run
        if number == CONTROL_RUN:
            return key in self._controls
        task = next(iter(self._taskdb.get(name, [key])), None)
        if task is None or task.run != number or task.status != TaskStatus.ACTIVE:
            return False
        self._leases.blame.recall((name, key), rules.toll(task.schedule))
        return True
