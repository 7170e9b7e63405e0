"""Looks at a cluster for `doctor`: databases, queues and the scheduler are asked, nothing is made or changed.

However many rows there are, each question is bounded, and all of them by `PATIENCE`; what was left out is said in the picture's notes.
"""

import contextlib
import math
import os
import time
from collections.abc import Callable, Collection, Iterator
from typing import Any

from pyspider_lite import __version__, bootstrap, exit_codes
from pyspider_lite.cli import cluster
from pyspider_lite.cli.at_once import at_once
from pyspider_lite.cli.cluster_view import View
from pyspider_lite.cli.picture import Picture, TableSeen
from pyspider_lite.cli.unloadable import unloadable
from pyspider_lite.database import share_tables
from pyspider_lite.database.inspection import Inspection
from pyspider_lite.database.url import Target, parse
from pyspider_lite.database.worker_table import peek
from pyspider_lite.errors import DatabaseError, PyspiderLiteError
from pyspider_lite.models.project import ACTIVE_PROJECT
from pyspider_lite.scheduler import rules
from pyspider_lite.settings import Settings

#: seconds for the tables of all projects, and for each answer of the scheduler
PATIENCE, _ANSWER = 20.0, 5.0
#: rows of one status of a project that are counted, rows whose columns are read, control work that is looked at
COUNTED, SAMPLE, CONTROLS = 100_000, 500, 1_000
#: ACTIVE tasks of a project up to which those that are crawled for ever are counted
_RECRAWLED = 10_000
#: due tasks of a project beyond those that the scheduler knows, and at most, that it is asked about
_BEYOND, _ASKED = 100, 10_000
#: seconds for which a task is due before the scheduler must know it
_SETTLED = 5.0
#: more rows than any table has
_ALL = 2**40


class Examiner:
    """Takes pictures of one cluster; ``full``: all rows are counted and all projects looked at, however long that takes. Without a ``broker``
    that carries messages nothing is said of the queues, nor of who is not heard through them."""

    def __init__(self, settings: Settings, *, full: bool, broker: bool) -> None:
        self._settings = settings
        self._full = full
        self._broker = broker
        self._prefixed = share_tables(settings.taskdb, settings.resultdb)
        self._deadline = math.inf
        self.limit = _ALL if full else COUNTED

    def look(self, only: Collection[str] | None = None) -> Picture | None:
        """The cluster now, None if nothing was ever here; of ``only`` these projects the tasks. Raises PyspiderLiteError."""
        self._deadline = math.inf if self._full else time.monotonic() + PATIENCE
        seen = peek(self.target("taskdb"))
        if seen is None:
            return None
        view = View(now=seen.now, leader=seen.leader, workers=seen.workers, config_hash=self._settings.digest)
        view.answers = cluster.ask_schedulers(self._settings, view)
        picture = Picture(view=view, ahead=time.time() - seen.now, version=__version__, limit=self.limit)
        self._measure_queues(picture)
        with bootstrap.open_projectdb(self._settings) as projectdb:
            picture.heads = {head.name: head for head in projectdb.heads()}
        with self.inspect("taskdb") as tasks:
            self._look_at_tasks(picture, tasks, only)
            self._ask_scheduler(picture, tasks)
            failed = tasks.failed_answers()
        with bootstrap.open_projectdb(self._settings) as projectdb:
            picture.unloadable = unloadable(projectdb, failed)
        if not self._is_missing(self.target("resultdb")):
            with self.inspect("resultdb") as results:
                picture.orphan_results = self._rows(results, results.projects() - picture.heads.keys())
        return picture

    def _measure_queues(self, picture: Picture) -> None:
        if not self._broker:
            picture.notes.append("not checked: queues, and which workers run, because of the message-queue")
            return
        (depths,) = at_once([lambda: cluster.measure(self._settings)], _ANSWER)
        if isinstance(depths, Exception):
            picture.notes.append(f"not checked: queues: {exit_codes.sentence(depths)}")
        else:
            picture.view.depths = depths

    def _is_missing(self, target: Target) -> bool:
        # to open the file would make it
        return target.url.drivername == "sqlite" and not os.path.exists(target.path)

    def target(self, kind: str) -> Target:
        """The database of this kind."""
        return parse(getattr(self._settings, kind), kind, prefixed=kind != "projectdb" and self._prefixed)

    @contextlib.contextmanager
    def inspect(self, kind: str) -> Iterator[Inspection]:
        """Its rows."""
        with contextlib.closing(Inspection(self.target(kind))) as inspection:
            yield inspection

    def _look_at_tasks(self, picture: Picture, tasks: Inspection, only: Collection[str] | None) -> None:
        picture.states = tasks.states()
        picture.controls = tasks.controls(CONTROLS)
        picture.held = tasks.held_controls(COUNTED)
        picture.dead_letters = tasks.dead_letters(COUNTED + 1)
        picture.with_tasks = tasks.projects()
        picture.orphans = self._rows(tasks, picture.with_tasks - picture.heads.keys())
        # those that are worked on come first
        heads = sorted(picture.heads.values(), key=lambda head: (head.status not in ACTIVE_PROJECT, head.name))
        names = [head.name for head in heads if head.name in picture.with_tasks and (only is None or head.name in only)]
        for number, name in enumerate(names):
            if time.monotonic() > self._deadline:
                picture.notes.append(f"sampled: tasks of {number} projects of {len(names)}; --full looks at all")
                break
            self._look_at_project(picture, tasks, name)
        if sum(picture.held.values()) >= COUNTED:
            picture.notes.append(f"sampled: {COUNTED} rows of control work were counted")
        if len(picture.controls) >= CONTROLS:
            picture.notes.append(f"sampled: the oldest {CONTROLS} rows of control work")

    def _look_at_project(self, picture: Picture, tasks: Inspection, name: str) -> None:
        try:
            compared = tasks.compare(name, self.limit)
            table = picture.tables[name] = TableSeen(compared=compared)
            table.without_due = tasks.without_due(name)
            table.broken = tasks.broken(name, SAMPLE)
            if compared.strange:
                table.strange = tasks.strange(name, COUNTED)
            if compared.found["active"] <= _RECRAWLED:
                table.periodic = count_periodic(tasks, name)
        except DatabaseError:
            if name in tasks.projects():
                raise
            picture.tables.pop(name, None)  # it was dropped meanwhile
            return
        many = [status for status, number in compared.found.items() if number > self.limit]
        if many:
            picture.notes.append(
                f"sampled: {name} has over {self.limit} {' and '.join(many)} tasks; --full counts them"
            )
        if sum(compared.found.values()) > 2 * SAMPLE:
            sampled = f"sampled: of large projects the columns of the newest {SAMPLE} and the first {SAMPLE} ACTIVE tasks were read"
            picture.notes += [sampled] if sampled not in picture.notes else []

    def _rows(self, inspection: Inspection, names: Collection[str]) -> dict[str, int]:
        return {name: inspection.rows(name, COUNTED + 1) for name in sorted(names) if inspection.is_ours(name)}

    # --- the scheduler ------------------------------------------------------------------------------------------------------

    def _ask_scheduler(self, picture: Picture, tasks: Inspection) -> None:
        if not picture.view.leads:
            return
        try:
            ask = self.scheduler()
            live: dict[str, dict[str, Any]] = ask("checkup")
            for name, known in live.items():
                if time.monotonic() > self._deadline:
                    picture.notes.append(
                        "sampled: not of all projects the due tasks were compared with what the scheduler knows"
                    )
                    break
                if known["active"] and known["known"] is not None and name in picture.tables:
                    picture.strangers[name] = _strangers(ask, tasks, picture, name, known["known"])
        except PyspiderLiteError as error:
            picture.notes.append(f"not checked: which tasks and projects the scheduler knows: {error}")
        else:
            picture.live = live

    def scheduler(self) -> Callable[..., Any]:
        """Calls to the scheduler that leads. Raises PyspiderLiteError if it cannot be asked from here."""
        url = bootstrap.scheduler_rpc(self._settings)
        return lambda method, *arguments: bootstrap.call_scheduler(
            self._settings, url, method, *arguments, timeout=_ANSWER
        )


def count_periodic(tasks: Inspection, name: str) -> tuple[int, int] | None:
    """Kept and real number of the project's tasks that are crawled again for ever."""
    found = tasks.recrawled(name, _RECRAWLED)
    return (found[0], sum(rules.read_stored(schedule).periodic for schedule in found[1])) if found else None


def _strangers(
    ask: Callable[..., Any], tasks: Inspection, picture: Picture, name: str, known: int
) -> list[tuple[str, float]]:
    # one more than it knows would be enough for one that it does not know to be among them
    rows = tasks.due(name, picture.view.now - _SETTLED, min(known + _BEYOND, _ASKED))
    if not rows:
        return []
    strangers = set(ask("strangers", name, [taskid for taskid, _ in rows]))
    return [(taskid, due) for taskid, due in rows if taskid in strangers]
