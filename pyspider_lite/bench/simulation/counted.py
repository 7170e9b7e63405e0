"""Drives the real `Scheduler.step` against a played crowd by a clock that is counted: what a cluster of a hundred machines would do to it,
on any machine.

The loop is that of `scheduler.daemon`, without its threads: the same limits of what one step hears and gives out, the same rules for when
nothing can be heard. How long a step takes is what decides how far a scheduler goes, so it takes as long as it used CPU, as on a core of its
own (``speed`` 1), or less on a faster one, or nothing at all (``speed`` inf), which shows what the rules alone would allow. Waiting for the
database's disk is not in it.
"""

import math
import os
import time
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from msgspec import Raw, Struct

from pyspider_lite import assembly, bootstrap, codec, configuration
from pyspider_lite.bench import processes
from pyspider_lite.bench.simulation.crowd import Cluster, Crowd
from pyspider_lite.bench.simulation.pages import Pages
from pyspider_lite.bench.simulation.tally import Figures, Sample, Tally, shares
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import RefusedToStart
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.project import Project, ProjectStatus
from pyspider_lite.models.task import NewTask, TaskStatus
from pyspider_lite.scheduler.hearing import DEAF_AFTER
from pyspider_lite.scheduler.inbox import CAPACITY, GATHER, Depths, Heard
from pyspider_lite.scheduler.queues import OUT_CAPACITY
from pyspider_lite.scheduler.scheduler import MAX_BACKLOG, Options, Scheduler

#: seconds of one turn of the crowd
_TURN = 0.01
#: messages in each queue, as configured by default
_QUEUE = 100
#: tasks of a message that fills newtask_queue; seconds between two probes
_SEED_BATCH, _PROBE = 1_000, 0.1
#: simulated seconds without a page after which a run has failed
_STANDSTILL = 60.0


class Run(Struct, frozen=True, kw_only=True):
    """What is simulated."""

    cluster: Cluster
    #: pages a second that all projects together may do
    rate: float
    pages: int
    projects: int = 4
    #: how many times faster than this machine's core the scheduler's is
    speed: float = 1.0
    #: share of the fetchers and processors that dies, once, after a third of the pages
    deaths: float = 0.0
    #: seconds for which the broker is away after two thirds of them
    outage: float = 0.0


class _Outlet:
    """The publisher: what a step puts is on its queue before the next one, as long as the queue has room."""

    def __init__(self) -> None:
        self.pending: deque[tuple[str, bytes]] = deque()

    def room(self) -> int:
        return OUT_CAPACITY - len(self.pending)

    def put(self, batch: str, body: bytes) -> None:
        self.pending.append((batch, body))


def simulate(folder: Path, run: Run, database: dict[str, str] | None = None) -> Figures:
    """Figures of the run, with ``problems``: what was not done exactly once. ``database``: taskdb and projectdb instead of SQLite."""
    options = configuration.load(None, {"data_path": str(folder), **(database or {})}, {}).settings
    bootstrap.make_data_path(options)
    with ExitStack() as stack:
        taskdb = assembly.connect_taskdb(options)
        stack.callback(taskdb.close)
        projectdb = stack.enter_context(bootstrap.open_projectdb(options, create=True))
        resultdb = assembly.connect_resultdb(options)
        stack.callback(resultdb.close)
        for number in range(run.projects):
            rate = run.rate / run.projects
            projectdb.insert(
                Project(
                    name=f"p{number}", status=ProjectStatus.RUNNING, script="#", rate=rate, burst=max(10.0, rate / 10)
                )
            )
        generations = {project.name: project.generation for project in projectdb.heads()}
        # places and windows full for some seconds, whatever each page leads to
        seed = round(4 * min(run.rate, run.cluster.fetchers * run.cluster.poolsize))
        pages = Pages(run.pages, min(run.pages, seed), generations)
        epoch = taskdb.lead("simulation", 0.0, "")
        assert epoch is not None
        began = taskdb.time()
        tasks_out, pages_out = _Outlet(), _Outlet()
        scheduler = Scheduler(
            taskdb=taskdb,
            projectdb=projectdb,
            resultdb=resultdb,
            epoch=epoch,
            tasks_out=tasks_out,
            pages_out=pages_out,
            now=began,
            options=Options(),
        )
        loop = _Loop(run, scheduler, pages, tasks_out, pages_out, began)
        loop.run()
        return {**loop.figures(), "problems": _problems(taskdb, pages, generations, loop)}


def _problems(taskdb: TaskDB, pages: Pages, names: dict[str, str], loop: "_Loop") -> str:
    stored: dict[int, int] = {}
    for name in names:
        for status, count in taskdb.status_count(name).items():
            stored[status] = stored.get(status, 0) + count
        stored[TaskStatus.SUCCESS] = stored.get(TaskStatus.SUCCESS, 0) - len(taskdb.get(name, ["on_finished"]))
    if stored != {TaskStatus.SUCCESS: pages.expected}:
        return f"{pages.expected} tasks, stored by status: {stored}"
    if loop.crowd.again and not loop.killed:
        return f"{loop.crowd.again} runs were given out again although nobody died"
    return ""


class _Loop:
    """The daemon's loop."""

    def __init__(
        self, run: Run, scheduler: Scheduler, pages: Pages, tasks_out: _Outlet, pages_out: _Outlet, began: float
    ) -> None:
        self._run, self._scheduler, self._pages = run, scheduler, pages
        self._outlets = {QueueName.TO_FETCHER: tasks_out, QueueName.CONTROL: pages_out}
        self._began = self.now = began
        self.crowd = Crowd(run.cluster, pages, began)
        self.tally = Tally()
        self._turned = began
        self._status: deque[bytes] = deque()
        self._new: deque[list[NewTask]] = deque()
        self._probes: dict[tuple[str, str], float] = {}
        self._probed = self._asked = began
        self._sent: list[str] = []
        self._depths: Depths | None = None
        self._cpu = 0.0
        self._messages = self._bytes = 0
        self._away_until = self._heard_at = -math.inf
        self._progress = (0, began)
        self.killed = self.outages = 0
        self._killed_at = 0.0

    def run(self) -> None:
        """Until all is done."""
        seed = self._pages.seed()
        self._new.extend(seed[start : start + _SEED_BATCH] for start in range(0, len(seed), _SEED_BATCH))
        while self._new or self._done < self._pages.expected or not self._scheduler.idle:
            self._harm()
            self._turn()
            full = self._step()
            pause = self._cost / self._run.speed
            self._publish(self.now + pause)
            self._look()
            # what does not fill the inbox gathers, as in `Inbox.collect`
            self.now += pause if full else max(GATHER, pause)

    def figures(self) -> Figures:
        """Of the whole run."""
        cluster, counters = self._run.cluster, self._scheduler.counters.get(self.now, "all")
        done = [self._scheduler.projects[name].counts.success for name in self._scheduler.projects]
        return {
            "pages": self._pages.expected,
            "rate": self._run.rate,
            "simulated_seconds": round(self.now - self._began, 1),
            **self.tally.figures(self._run.pages, cluster.fetchers * cluster.poolsize),
            "lease_clock_percent": round(100 * self._scheduler.leases.clock / (self.now - self._began), 1),
            "fetchers": shares(self.crowd.done(Role.FETCHER)),
            "projects": shares(done),
            "killed": self.killed,
            "given_out_again_within_s": round(max(0.0, self.crowd.last_orphan_at - self._killed_at), 1),
            "given_out_again": self.crowd.again,
            # a fetcher's death loses what was on its way to it, too
            "leases_lost": round(sum(count.get("lost", 0) for count in counters.values())),
            "rss_mb": round(processes.peak(os.getpid()) / 1e6, 1),
        }

    # --- the world ------------------------------------------------------------------------------------------------------

    @property
    def _done(self) -> int:
        return sum(project.counts.success for project in self._scheduler.projects.values())

    @property
    def _away(self) -> bool:
        """The broker is."""
        return self.now < self._away_until

    def _harm(self) -> None:
        done = self._done
        if done > self._progress[0]:
            self._progress = (done, self.now)
        elif self.now - self._progress[1] > _STANDSTILL + self._run.outage:
            raise RefusedToStart(f"the simulated crawl stands still at {done} pages of {self._pages.expected}")
        if self._run.deaths and not self.killed and done >= self._run.pages / 3:
            self.killed = self.crowd.kill(self._run.deaths, self.now)
            self._killed_at = self.now
        if self._run.outage and not self.outages and done >= self._run.pages * 2 / 3:
            self.outages = 1
            self._away_until = self.now + self._run.outage

    def _turn(self) -> None:
        """The crowd goes on until now, in turns of its own."""
        while self._turned + _TURN <= self.now:
            self._turned += _TURN
            if not self._away:
                self._publish(self._turned)
                self.crowd.step(self._turned)
                self._collect_status()
        if self._new:
            self._probed = self.now
        while self.now - self._probed >= _PROBE and self._done < self._run.pages * 0.9:
            self._probed += _PROBE
            task = self._pages.probe()
            self._probes[task.project, task.taskid] = self._probed
            self._new.append([task])

    def _publish(self, now: float) -> None:
        if self._away:
            return
        depths = self.crowd.depths()
        for queue, outlet in self._outlets.items():
            room = _QUEUE - depths[queue]
            while outlet.pending and room > 0:
                batch, body = outlet.pending.popleft()
                self.crowd.put(queue, body, now)
                self._sent.append(batch)
                room -= 1

    def _collect_status(self) -> None:
        self._status.extend(self.crowd.say(self.now, _QUEUE - len(self._status)))

    # --- the scheduler --------------------------------------------------------------------------------------------------

    def _step(self) -> bool:
        """One step; True if it heard as much as it may, so that the next one is due at once."""
        deaf = self._away and self.now - self._heard_at > DEAF_AFTER
        if not self._away:
            if self.now - self._heard_at > DEAF_AFTER:
                self._scheduler.leases.fresh_term()
            self._heard_at = self.now
        bodies = self._take()
        new = [self._new.popleft() for _ in range(min(len(self._new), 5))] if not self._away else []
        packed = [NewTaskBatch(tasks=[Raw(codec.pack(task)) for task in tasks]) for tasks in new]
        sent, self._sent = self._sent, []
        depths, self._depths = self._depths, None
        with self._measured():
            status = [codec.decode(body, StatusBatch) for body in bodies]
            drained = len(status) + len(packed) < CAPACITY and not deaf
            heard = Heard(
                status=status, new=[(batch, _nothing) for batch in packed], sent=sent, depths=depths, drained=drained
            )
            self._scheduler.step(self.now, heard)
        return len(bodies) + len(packed) >= CAPACITY

    def _take(self) -> list[bytes]:
        """What the consumer brings; as it takes, others find room to put."""
        bodies: list[bytes] = []
        if self._away or self._scheduler.backlog >= MAX_BACKLOG:
            return bodies
        while self._status and len(bodies) < CAPACITY:
            bodies.append(self._status.popleft())
        self._collect_status()
        self._messages += len(bodies)
        self._bytes += sum(map(len, bodies))
        return bodies

    @contextmanager
    def _measured(self) -> Iterator[None]:
        began = time.thread_time()
        yield
        self._cost = time.thread_time() - began
        self._cpu += self._cost
        if not self._new:
            self.tally.steps.append(self._cost)

    def _look(self) -> None:
        tally, crowd = self.tally, self.crowd
        for key in [key for key in self._probes if key in crowd.given_at]:
            tally.latencies.append(crowd.given_at[key] - self._probes.pop(key))
        if self.now - self._asked >= 1.0:
            self._asked = self.now
            if not self._away:
                self._depths = Depths(self._scheduler.leases.clock, crowd.depths())
        tally.samples.append(
            Sample(
                self.now - self._began,
                self._cpu,
                self._done,
                crowd.given,
                crowd.batches,
                len(tally.steps),
                self._messages,
                self._bytes,
            )
        )
        tally.in_flight.append(len(self._scheduler.leases))
        tally.taken.append(sum(crowd.running))
        tally.waiting.append(len(self._status))


def _nothing() -> None:
    """An acknowledgement that nobody waits for."""
