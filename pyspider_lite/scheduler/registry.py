"""Which projects there are, and what became of them: compares the projectdb with memory, once a second at most."""

import logging
from collections.abc import Callable, Iterable
from hashlib import md5

from pyspider_lite.database.base import ProjectDB, TaskDB
from pyspider_lite.models.project import ACTIVE_PROJECT, ProjectHead, ProjectState
from pyspider_lite.scheduler.project_state import ProjectRun

logger = logging.getLogger("scheduler")

#: seconds between two looks at the projectdb's stamp, and between two full comparisons whatever the stamp says
LOOK_EVERY = 1.0
COMPARE_EVERY = 60.0
#: smallest window of a project, however many there are
_MIN_WINDOW = 100


class Registry:
    """The projects of the projectdb, as `ProjectRun` objects in ``projects``."""

    def __init__(
        self,
        projectdb: ProjectDB,
        taskdb: TaskDB,
        *,
        window: int,
        window_total: int,
        fail_pause_num: int,
        active_tasks: int,
        gone: Callable[[ProjectRun], None],
    ) -> None:
        """``gone`` is told of each project that is no more."""
        self.projects: dict[str, ProjectRun] = {}
        #: names of projects that were added or changed since the scheduler looked what that brings about
        self.touched: set[str] = set()
        self._projectdb = projectdb
        self._window = window
        self._window_total = window_total
        self._fail_pause_num = fail_pause_num
        self._active_tasks = active_tasks
        self._gone = gone
        self._states: dict[str, ProjectState] = taskdb.project_states()
        #: not returned yet, because a comparison failed half-way
        self._changed: list[ProjectRun] = []
        self._stamp: tuple[int, float] | None = None
        self._looked = float("-inf")
        self._compared = float("-inf")

    def expire(self) -> None:
        """Look again at the next `refresh`, whatever the time."""
        self._looked = float("-inf")
        self._stamp = None

    def refresh(self, now: float) -> list[ProjectRun]:
        """Bring ``projects`` up to date; those whose script is new or changed (they must be asked for their info)."""
        if now - self._looked < LOOK_EVERY:
            return []
        stamp = self._projectdb.stamp()
        if stamp != self._stamp or now - self._compared >= COMPARE_EVERY:
            self._compare(self._projectdb.heads(), now)
            self._stamp, self._compared = stamp, now
        # only now: what failed half-way is looked at again
        self._looked = now
        changed, self._changed = self._changed, []
        return [project for project in changed if project.active]

    def forget(self, name: str) -> None:
        """The project was deleted."""
        project = self.projects.pop(name, None)
        self._states.pop(name, None)
        if project is not None:
            self._gone(project)

    def _compare(self, heads: Iterable[ProjectHead], now: float) -> None:
        heads = list(heads)
        limit = min(self._window, max(_MIN_WINDOW, self._window_total // max(1, len(heads))))
        gone = set(self.projects) - {head.name for head in heads}
        for head in heads:
            project = self.projects.get(head.name)
            if project is not None and project.head.generation != head.generation:
                self.forget(head.name)
                project = None
            if project is None:
                self._changed.append(self._add(head, limit, now))
            elif project.head != head and self._update(project, head, now):
                self._changed.append(project)
        for name in gone:
            logger.info("project %s is gone", name)
            self.forget(name)

    def _add(self, head: ProjectHead, limit: int, now: float) -> ProjectRun:
        counts = self._states.get(head.name)
        if counts is None or counts.generation != head.generation:
            counts = ProjectState(project=head.name, generation=head.generation)
        project = ProjectRun(
            head,
            counts,
            window_limit=limit,
            fail_pause_num=self._fail_pause_num,
            now=now,
            log_length=self._active_tasks,
        )
        if project.active:
            project.md5 = self._md5(head.name)
        self.projects[head.name] = project
        self.touched.add(head.name)
        return project

    def _update(self, project: ProjectRun, head: ProjectHead, now: float) -> bool:
        """Take over a changed row; True if its script must be asked for its info."""
        was_active = project.active
        script = ""
        if head.status in ACTIVE_PROJECT:
            # first what may fail: then the head still differs, and it is done again
            script = self._md5(head.name)
        project.head = head
        project.bucket.set(head.rate, head.burst, now)
        project.wake_at = float("-inf")
        self.touched.add(head.name)
        # who changes a project wants it to be tried
        project.pause.resume()
        if was_active and not project.active:
            logger.info("project %s: %s, nothing more is given out", head.name, head.status)
        if not project.active:
            project.info = None
            project.md5 = ""
            return False
        if script == project.md5:
            return False
        # jobs that are new missed nothing; a tick of this very moment may be on its way
        project.last_tick = max(project.last_tick, int(now) - 2)
        project.md5, project.info = script, None
        return True

    def _md5(self, name: str) -> str:
        project = self._projectdb.get(name)
        return md5(project.script.encode(errors="surrogatepass")).hexdigest() if project else ""
