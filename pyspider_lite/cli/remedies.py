"""What `doctor --repair` does: what is safe while the cluster runs, and when it does not, by the ways that commands and daemons use, too.

Counts are written in a transaction that begins, as every one of the scheduler's, by locking the leader row: so neither writes over what
the other has not seen. What only the scheduler has in memory it is asked to read again.
"""

import contextlib
import time
from collections.abc import Callable, Iterator

from msgspec.structs import replace

from pyspider_lite import assembly, bootstrap
from pyspider_lite.cli.examination import COUNTED, Examiner, count_periodic
from pyspider_lite.cli.picture import Found, Picture, Remedy
from pyspider_lite.cli.project_checks import is_astray, wrong_counts
from pyspider_lite.database.base import TaskTx
from pyspider_lite.database.inspection import Inspection
from pyspider_lite.errors import PyspiderLiteError, RefusedToStart
from pyspider_lite.models.letter import DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.project import ProjectState
from pyspider_lite.settings import Settings


class Remedies:
    """Mends what a picture shows."""

    def __init__(self, settings: Settings, examiner: Examiner, picture: Picture) -> None:
        self._settings = settings
        self._examiner = examiner
        self._picture = picture
        self._ways: dict[Remedy, Callable[[str], str]] = {
            Remedy.COUNTS: self._count,
            Remedy.DUE: self._make_due,
            Remedy.LOOK_AGAIN: self._look_again,
            Remedy.LEADER: self._free_lead,
            Remedy.CONTROL: self._set_aside,
            Remedy.PURGE: self._purge,
        }

    def apply(self, found: Found) -> str:
        """What was done about it, in words. Raises PyspiderLiteError if it could not be done."""
        assert found.remedy is not None
        return self._ways[found.remedy](found.subject)

    def _count(self, name: str) -> str:
        with bootstrap.open_taskdb(self._settings) as taskdb, self._examiner.inspect("taskdb") as tasks:
            with taskdb.begin(None) as tx:
                before, after = self._counted(tx, tasks, name)
                tx.put_project_states([after])
            changed = [
                f"{key} {getattr(before, key)} -> {getattr(after, key)}"
                for key in ("active", "success", "failed", "bad", "periodic")
                if getattr(before, key) != getattr(after, key)
            ]
        self._tell(name)
        return f"counts of {name}: {', '.join(changed) or 'they are right now'}"

    def _counted(self, tx: TaskTx, tasks: Inspection, name: str) -> tuple[ProjectState, ProjectState]:
        generation = self._picture.heads[name].generation if name in self._picture.heads else ""
        before = tx.project_states([name]).get(name) or ProjectState(project=name, generation=generation)
        if name not in tasks.projects():
            return before, replace(before, active=0, success=0, failed=0, bad=0, periodic=0)
        compared = tasks.compare(name, COUNTED)
        counts = wrong_counts(compared, COUNTED)
        if any(number > COUNTED for number in counts.values()):
            if self._picture.view.leads:
                # everybody waits for this transaction, and a leader that waits for more than its term leads no longer
                raise RefusedToStart(
                    f"{name} has too many tasks to count while a scheduler leads: stop the scheduler, and do it again"
                )
            counts = wrong_counts(tasks.compare(name, 2**40), 2**40)
        if (periodic := count_periodic(tasks, name)) and compared.found["active"] <= COUNTED:
            counts["periodic"] = periodic[1]
        return before, replace(before, **counts)

    def _make_due(self, subject: str) -> str:
        name = subject.partition(" ")[0]
        with bootstrap.open_taskdb(self._settings) as taskdb:
            taskdb.open_project(name)  # completes rows that other programs wrote
        self._tell(name)
        return f"tasks of {name} without a due time: now due at once, or when their exetime says"

    def _look_again(self, subject: str) -> str:
        name = subject.partition(" ")[0]
        self._examiner.scheduler()("look_again", name)
        return f"the scheduler looks again at {name}"

    def _free_lead(self, subject: str) -> str:
        with bootstrap.open_taskdb(self._settings) as taskdb:
            leader = taskdb.leader()
            if leader is not None:
                taskdb.resign(leader.epoch)
        return "the lead is free: a scheduler that runs takes it within seconds"

    def _set_aside(self, subject: str) -> str:
        controls = self._picture.controls
        rows = [row for row in controls if row.id == subject and not row.readable]
        rows += [row for row in controls if row.project == subject and row.readable and is_astray(self._picture, row)]
        letters = [
            DeadLetter(
                kind=LetterKind.CONTROL,
                project=row.project,
                taskid=row.id,
                reason="it cannot be read" if not row.readable else "its project does not exist",
                payload=row.raw.encode(errors="replace")[: 64 * 1024],
                size=len(row.raw.encode(errors="replace")),
                time=time.time(),
            )
            for row in rows
        ]
        with bootstrap.open_taskdb(self._settings) as taskdb, taskdb.begin(None) as tx:
            tx.add_dead_letters(letters)
            tx.delete_controls([row.id for row in rows])
        return f"{subject[:80]}: {len(rows)} of control work, now dead letters"

    def _purge(self, subject: str) -> str:
        queue = assembly.connector(self._settings, QueueName(subject))()
        with contextlib.closing(queue):
            return f"{queue.purge()} messages of {subject} were dropped"

    def _tell(self, name: str) -> None:
        """The scheduler, if one leads: it reads what was changed. Where it cannot be asked, it finds out by itself in time."""
        if self._picture.view.leads:
            with contextlib.suppress(PyspiderLiteError):
                self._examiner.scheduler()("look_again", name)


def repair(remedies: Remedies, found: list[Found]) -> Iterator[tuple[Found, str, bool]]:
    """Each thing that can be mended with what was done, or why not, and whether it is mended."""
    for one in found:
        if one.remedy is None:
            continue
        try:
            yield one, remedies.apply(one), True
        except PyspiderLiteError as error:
            yield one, str(error), False
