"""Deletes projects that a command or their group asks to delete (behaviour S80, UA46): tasks, then results, then the project itself.

What asks for it goes last, so a deletion that breaks off half-way, also with the scheduler, is done again as a whole; and the name is
free only when nothing is left under it. Owned by `Scheduler`, which calls it once a step. A database that is away keeps the deletion
waiting and nothing else.
"""

import logging
import re

from pyspider_lite.consumer import Backoff
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.outages import Waiter
from pyspider_lite.scheduler.control_work import ControlWork
from pyspider_lite.scheduler.registry import Registry

logger = logging.getLogger("scheduler")


class Deletion:
    """The deletions of one term of leadership."""

    def __init__(
        self,
        taskdb: TaskDB,
        projectdb: ProjectDB,
        resultdb: ResultDB,
        registry: Registry,
        control: ControlWork,
        epoch: int,
        delete_time: float,
    ) -> None:
        self._taskdb = taskdb
        self._projectdb = projectdb
        self._resultdb = resultdb
        self._registry = registry
        self._control = control
        self._epoch = epoch
        self._delete_time = delete_time
        self._backoff = Backoff(0.2)
        self._waiter = Waiter()
        self._retry_at = float("-inf")

    def step(self, now: float) -> None:
        """Do what is asked for. Raises LostLeadership."""
        if now < self._retry_at:
            return
        try:
            self._groups(now)
            self._asked_for()
        except LostLeadership:
            raise
        except DatabaseError as error:
            self._waiter.away(error)
            self._retry_at = now + self._backoff.next()
        else:
            self._waiter.back()
            self._backoff.reset()

    def end(self) -> None:
        """The scheduler leads no longer."""
        self._waiter.stop()

    def _groups(self, now: float) -> None:
        for project in list(self._registry.projects.values()):
            words = re.split(r"\W+", (project.head.group or "").lower())  # behaviour S9
            stopped_long = project.head.status == "STOP" and now - project.head.updatetime >= self._delete_time
            if stopped_long and "delete" in words:
                self._delete(project.name, project.head.generation)

    def _asked_for(self) -> None:
        for row in list(self._control.deletions.values()):
            current = self._projectdb.get(row.project)
            # another project of that name: then nothing of this one is left
            if current is None or current.generation == row.generation:
                self._delete(row.project, row.generation)
            with self._taskdb.begin(self._epoch) as tx:
                tx.delete_controls([row.id])
            del self._control.deletions[row.id]

    def _delete(self, name: str, generation: str) -> None:
        self._taskdb.drop_project(name, self._epoch)
        self._resultdb.drop(name, generation)
        self._projectdb.drop(name, generation)
        self._control.forget(name)
        self._registry.forget(name)
        logger.info("project %s was deleted", name)
