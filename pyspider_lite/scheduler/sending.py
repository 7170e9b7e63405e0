"""How work leaves the scheduler: in batches that fit into a message, leased out and put onto a queue. Used by `dispatch` for tasks, by
`control_dispatch` for control work."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Generic, NamedTuple, Protocol, TypeVar

from pyspider_lite import codec, crawl_config
from pyspider_lite.errors import UnsendableMessage
from pyspider_lite.models.batch import PageBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch, Page
from pyspider_lite.models.task import DueKey, Task
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.blame import NOTHING
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.project_state import ProjectRun

Content = TypeVar("Content", Dispatch, Page)


class Outlet(Protocol):
    """A publisher, as seen from here."""

    def room(self) -> int:
        """Batches that may be put now without waiting."""
        ...

    def put(self, batch: str, body: bytes) -> None: ...


class Run(NamedTuple, Generic[Content]):
    """What goes out."""

    #: how it travels
    content: Content
    task: Dispatch
    #: seconds that one worker may hold it at most
    cap: float
    #: where it waited, if it was chosen from a window
    ticket: DueKey | None = None


def to_dispatch(task: Task, project: ProjectRun, stamp: int, suspect: bool = False) -> Dispatch:
    """A task row as it is given out (behaviour S6)."""
    config = project.info.crawl_config if project.info else {}
    return Dispatch(
        taskid=task.taskid,
        project=task.project,
        url=task.url,
        run=task.run,
        generation=project.head.generation,
        schedule=rules.with_toll(task.schedule, NOTHING),
        fetch=crawl_config.join_fetch(task.fetch, config),
        process=crawl_config.join_process(task.process, config),
        track=task.track,
        status=task.status,
        lastcrawltime=task.lastcrawltime,
        group=project.head.group,
        project_md5sum=project.md5,
        project_updatetime=project.head.updatetime,
        debug=project.head.status == "DEBUG",
        unconditional=task.unconditional,
        suspect=suspect,
        epoch=stamp,
    )


class Sender:
    """Of one term of leadership. ``unsendable`` hears of each run that fits into no message, and why."""

    def __init__(self, epoch: int, leases: Leases, unsendable: Callable[[Dispatch, str], None]) -> None:
        self.epoch = epoch
        self._leases = leases
        self._unsendable = unsendable
        self.batches = 0
        self._stamp = epoch
        #: runs put so far, by queue
        self.sent: Counter[QueueName] = Counter()

    @property
    def processors(self) -> int:
        """How many live; one at least."""
        return max(1, len(self._leases.pool_sizes(Role.PROCESSOR)))

    def stamp(self, now: float) -> int:
        """What tells runs that are given out now from all before, the same run among them (`Dispatch.epoch`); ``now`` is database time."""
        self._stamp = max(self._stamp + 1, int(now * 1000))
        return self._stamp

    def send(
        self,
        queue: QueueName,
        outlet: Outlet,
        runs: list[Run[Content]],
        message: Callable[[str, list[Content]], TaskBatch | PageBatch],
    ) -> None:
        """One batch, or several if it is too large for a message; ``message`` makes it of its name and contents."""
        self.batches += 1
        name = f"scheduler-{self.epoch}-{self.batches}"
        try:
            body = codec.encode(message(name, [run.content for run in runs]))
        except UnsendableMessage as error:
            if len(runs) == 1:
                # its end is that of a run
                self._leases.dispatch(name, queue, [(runs[0].task.key, runs[0].ticket, math.inf)])
                self._unsendable(runs[0].task, str(error))
            else:
                middle = len(runs) // 2
                self.send(queue, outlet, runs[:middle], message)
                self.send(queue, outlet, runs[middle:], message)
            return
        # only now: what is leased and never put would be waited for without end
        self._leases.dispatch(name, queue, [(run.task.key, run.ticket, run.cap) for run in runs])
        outlet.put(name, body)
        self.sent[queue] += len(runs)
