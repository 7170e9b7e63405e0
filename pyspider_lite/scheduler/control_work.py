"""Control work: entered, read, given out, ended; what asks for a deletion is kept for `deletion.py`. Rows of projects that are not worked
on stay in the table only (`control_queues`)."""

import logging
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from itertools import takewhile
from typing import Any

from msgspec.structs import replace

from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.control import Control, ControlHead, ControlKind
from pyspider_lite.models.names import CONTROL_RUN, RunKey
from pyspider_lite.models.report import Report
from pyspider_lite.scheduler import control, rules
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.control_queues import ControlQueues
from pyspider_lite.scheduler.cron_ticks import CronTicks, jobs_in
from pyspider_lite.scheduler.dispatch import Dispatcher
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.project_state import Info, ProjectRun

logger = logging.getLogger("scheduler")

#: seconds between two looks for rows that commands entered
LOOK_EVERY = 1.0
#: seconds before a script that can be loaded after all is asked about itself once more: it may load on one machine and not on another
ASK_AGAIN = 60.0
#: rows read at once, pages in a step at most, and projects whose rows are read again in a step at most
PAGE, PAGES, READ_AGAIN = 1_000, 20, 20
#: rows read with all that is in them at once at most, and bytes that several of them may take
MANY, READ_BYTES = 256, 1024 * 1024
#: in this order they are read again: of each project there is little but messages
_KINDS = (ControlKind.INFO, ControlKind.START, ControlKind.FINISHED, ControlKind.CRON, ControlKind.MESSAGE)
#: row numbers before the last one seen that are looked at again
LOOK_BACK = 200


class ControlWork:
    """Everything that is not a task."""

    def __init__(
        self,
        taskdb: TaskDB,
        projects: dict[str, ProjectRun],
        dispatcher: Dispatcher,
        *,
        give_ticks: bool = True,
    ) -> None:
        self._taskdb = taskdb
        self._projects = projects
        self._dispatcher = dispatcher.controls
        self._queues = ControlQueues()
        #: rows known, by id
        self.rows = self._queues.rows
        self.ticks = CronTicks(projects, give=give_ticks)
        #: rows that ask for a deletion, by id
        self.deletions: dict[str, Control] = {}
        self._last_seq = 0
        self._looked = float("-inf")
        #: there are rows that were not looked at yet
        self.behind = False
        #: projects whose script could not be asked about itself, and then ran
        self._loaded: set[str] = set()

    def expire(self) -> None:
        """Look for new rows at the next step."""
        self._looked = float("-inf")

    # --- entering -------------------------------------------------------------------------------------------------------

    def ask_info(self, batch: Batch, project: ProjectRun) -> None:
        """The script is new or changed: ask it (behaviour S12), unless it has answered a leader before us. An answer that was asked
        for before is waited for."""
        row = control.info(project)
        answer, project.answered = control.kept_answer(project.answered, row), ""
        if answer is not None:
            self._take_answer(project, answer)
        elif row.id in self.rows:
            self._queues.put(row, first=True)
        else:
            batch.controls.append(row)

    def ask_anew(self, batch: Batch, project: ProjectRun) -> None:
        """The same, when its row may be gone from the table."""
        row = control.info(project)
        if (project.name, row.id) not in self._dispatcher.in_flight():
            self._queues.drop(row.id)
            batch.controls.append(row)

    def ask_again(self, batch: Batch, now: float) -> None:
        """Ask those scripts that could not be asked and ran since: what they need is there now."""
        loaded, self._loaded = self._loaded, set()
        for name in loaded:
            project = self._projects.get(name)
            if project is None or not project.active or project.info is None or project.info.answered:
                continue
            if now >= project.ask_again_at:
                project.ask_again_at = now + ASK_AGAIN
                self.ask_anew(batch, project)

    def load(self, now: float) -> None:
        """Read rows that others entered; before the first commit, since reports are about them."""
        for name in self._queues.to_read(READ_AGAIN):
            if self._read_again(name):
                self._queues.got_some(name)
        if now - self._looked < LOOK_EVERY:
            return
        # transactions may commit in another order than that of their numbers: look back a little
        after = max(0, self._last_seq - LOOK_BACK)
        for _ in range(PAGES):
            page = self._taskdb.control_heads(after, PAGE)
            for row in self._rows(filter(self._wants, page)):
                self._found(row)
            if not page:
                self.behind, self._looked = False, now
                return
            after = page[-1].seq
            self._last_seq = max(self._last_seq, after)
        self.behind = True

    def _rows(self, heads: Iterable[ControlHead]) -> Iterator[Control]:
        """The rows of these, as few at once as their size and the room demand: what is read for nothing is read again."""
        ids: list[str] = []
        size = 0
        for head in heads:
            ids.append(head.id)
            size += head.size
            if len(ids) == MANY or size >= min(READ_BYTES, self._queues.room(head.size)):
                yield from self._taskdb.control_rows(ids)
                ids, size = [], 0
        if ids:
            yield from self._taskdb.control_rows(ids)

    def _found(self, row: Control) -> None:
        """A row of the table, or just entered there."""
        if not self._wants(row):
            return
        if row.kind == ControlKind.DELETE:
            self.deletions[row.id] = row
        else:
            self._enter(row)

    def _wants(self, row: Control | ControlHead) -> bool:
        """It is to come into memory; if not now, it stays in the table until it is read again."""
        if row.id in self.rows or row.id in self.deletions:
            return False
        if row.kind == ControlKind.DELETE:
            return True
        if not self._works_on(row):
            self._queues.leave(row.project, active=False)
            return False
        behind = row.kind == ControlKind.MESSAGE and self._queues.has_more(row.project)
        if behind or not self._queues.has_room(row):
            self._queues.leave(row.project, active=True, size=self._queues.size(row))
            return False
        return True

    def _works_on(self, row: Control | ControlHead) -> bool:
        """The project that it is for is worked on; not an earlier or later one of that name."""
        project = self._projects.get(row.project)
        return project is not None and project.active and row.generation in ("", project.head.generation)

    def _read_again(self, name: str) -> bool:
        """Let in what was left in the table of a project; whether something came."""
        project = self._projects.get(name)
        if project is None or not project.active:
            self._queues.leave(name, active=False)
            return False
        before = len(self.rows)
        if all(self._read_kind(project, kind) for kind in _KINDS):
            self._queues.all_read(name)
        return len(self.rows) > before

    def _read_kind(self, project: ProjectRun, kind: ControlKind) -> bool:
        """Of this kind, in their order; False if there is no room for all."""
        after = 0
        # those in flight come first in the table
        limit = self._queues.most + self._dispatcher.of(project.name)
        while page := self._taskdb.project_control_heads(project.name, project.head.generation, kind, after, limit):
            new = [head for head in page if head.id not in self.rows]
            for row in self._rows(takewhile(self._queues.has_room, new)):
                if not self._queues.has_room(row):
                    break
                self._enter(row)
            left = [head for head in new if head.id not in self.rows and not self._queues.has_room(head)]
            if left:
                self._queues.next_is(project.name, left[0].size)
                return False
            after = page[-1].seq
        return True

    def _enter(self, row: Control) -> None:
        self._dispatcher.recall(row)
        row = replace(row, task=replace(row.task, schedule=rules.with_toll(row.task.schedule, NOTHING)))
        # everything of the project waits for its info
        self._queues.put(row, first=row.kind == ControlKind.INFO)
        self.ticks.entered(row)

    # --- giving out -----------------------------------------------------------------------------------------------------

    def dispatch(self, now: float) -> None:
        """Give out what waits, as far as budget and room allow: one of each project in turn, so that one that has thousands, or is slow,
        holds up no other."""
        room = self._dispatcher.room()
        chosen: list[tuple[Control, ProjectRun]] = []
        names = self._queues.waiting()
        counts = Counter({name: self._dispatcher.of(name) for name in names})
        share = self._dispatcher.share(len(names))
        turn = deque(names)
        while turn and len(chosen) < room:
            name = turn.popleft()
            project = self._projects.get(name)
            if project is None or not project.active:
                self._set_aside(name)
            elif counts[name] < share and (row := self._next(project, now)) is not None:
                chosen.append((row, project))
                counts[name] += 1
                turn.append(name)
        self._queues.served({row.project: None for row, _ in chosen})
        if chosen:
            try:
                self._dispatcher.dispatch(chosen, now)
            except Exception:
                # those that are in flight by now are left out the next time
                for row, _ in reversed(chosen):
                    self._queues.put(row, first=True)
                raise

    def _next(self, project: ProjectRun, now: float) -> Control | None:
        """The first row of the project that may go now."""
        waits: list[Control] = []
        found = None
        while found is None and (row := self._queues.take(project.name)) is not None:
            if (row.project, row.id) in self._dispatcher.in_flight():
                continue
            if not self._works_on(row):
                # meant for an earlier project of that name; the row goes with that one's deletion
                self._drop(row)
            elif not self._dispatcher.may_go(row, now):
                waits.append(row)
            elif self._queues.too_much_out:
                self._queues.put(row, first=True)
                break
            else:
                found = row
        for row in waits:
            self._queues.put(row)
        return found

    def _set_aside(self, name: str) -> None:
        """The project is not worked on any more: its rows stay in the table only."""
        for row in self._queues.take_all(name):
            if (row.project, row.id) not in self._dispatcher.in_flight():
                self._drop(row)
        self._queues.leave(name, active=False)

    def unpark(self, name: str) -> None:
        """The project is active again: what waited for it may go."""
        self._queues.wake(name)

    def requeue(self, run: RunKey) -> bool:
        """A run was lost; False if it was no control work."""
        name, row_id, number = run
        if number != CONTROL_RUN:
            return False
        if row_id in self.rows:
            self._queues.put(self.rows[row_id])
        else:
            self._queues.leave(name, active=True)
        return True

    @property
    def pending(self) -> bool:
        """Something waits, or is under way."""
        return self.behind or not self._queues.empty

    # --- ending ---------------------------------------------------------------------------------------------------------

    def committed(self, plan: Plan) -> None:
        """A plan was committed: its new rows are here, its ended ones are gone."""
        for row in plan.controls.values():
            self._found(row)
        for row_id in plan.done_controls:
            if row_id in self.rows:
                self._drop(self.rows[row_id])

    def _drop(self, row: Control) -> None:
        """It leaves memory."""
        self._queues.drop(row.id)
        self.ticks.left(row)

    def reported(self, report: Report, project: ProjectRun) -> None:
        """A run was done. An answer to _on_get_info is taken over (behaviour S12, H63); a broken script's is empty."""
        if report.control and report.control == control.info(project).id:
            self._take_answer(project, report.info or {}, answered=report.ok)
        elif report.ok and project.info is not None and not project.info.answered:
            self._loaded.add(project.name)

    def _take_answer(self, project: ProjectRun, answer: dict[str, Any], *, answered: bool = True) -> None:
        crawl_config = answer.get("crawl_config")
        project.info = Info(
            crawl_config=crawl_config if isinstance(crawl_config, dict) else {},
            retry_delay=rules.retry_delays(answer.get("retry_delay")),
            jobs=jobs_in(answer, project.name),
            answered=answered,
        )
        project.next_tick = float("-inf")
        project.wake_at = float("-inf")
        self.ticks.look_now()

    def forget(self, name: str) -> None:
        """The project was deleted with its rows."""
        self._queues.forget(name)
        self.ticks.forget(name)
