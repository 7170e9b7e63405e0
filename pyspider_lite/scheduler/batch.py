"""What one transaction of the scheduler takes in. Pure."""

from __future__ import annotations

from collections.abc import Callable

from msgspec.structs import replace

from pyspider_lite import codec
from pyspider_lite.models.control import Control
from pyspider_lite.models.letter import DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler.blame import LeaseKey, Toll
from pyspider_lite.scheduler.job_states import Ticks
from pyspider_lite.scheduler.plan import Plan
from pyspider_lite.scheduler.task_orders import TaskOrder


class Batch:
    """Reports, submissions and whatever else is to be written together."""

    def __init__(self) -> None:
        self.reports: list[Report] = []
        #: failed reports after which there is no retry
        self.poisoned: list[Report] = []
        self.submissions: list[NewTask] = []
        #: each goes in a transaction of its own
        self.orders: list[TaskOrder] = []
        #: control rows to be entered besides: info, cron ticks
        self.controls: list[Control] = []
        self.dead_letters: list[DeadLetter] = []
        #: cron ticks given out or left out, by project
        self.ticks: dict[str, Ticks] = {}
        #: projects that may be finished
        self.ending: set[str] = set()
        #: automatic pauses that began or ended, by project: until when, and why
        self.pauses: dict[str, tuple[float, str]] = {}
        #: how many workers died over tasks and control work, where that changed: by project and taskid or control id
        self.tolls: dict[LeaseKey, Toll] = {}
        #: called after the commit with the plan: acks, answers
        self.then: list[Callable[[Plan], None]] = []
        #: these reports stand for others that could not be stored
        self.last_resort = False

    def __bool__(self) -> bool:
        return bool(
            self.reports
            or self.poisoned
            or self.submissions
            or self.orders
            or self.controls
            or self.dead_letters
            or self.ticks
            or self.ending
            or self.pauses
            or self.tolls
            or self.then
        )

    def rows(self) -> int:
        """About how many rows it will touch."""
        return (
            len(self.submissions)
            + sum(1 + len(report.follows) for report in self.reports)
            + sum(len(order.tasks) for order in self.orders)
        )

    def cut(self, reports: int, rows: int) -> list[Batch]:
        """This batch in the same order, as batches of at most so many reports, or about so many rows. What is to be called after
        the commit is called after the last."""
        batches = [*map(_of_order, self.orders), Batch()]
        size = 0
        for report in self.reports:
            if len(batches[-1].reports) >= reports or (size and size + len(report.follows) >= rows):
                batches.append(Batch())
                size = 0
            batches[-1].reports.append(report)
            size += 1 + len(report.follows)
        for start in range(0, len(self.submissions), rows):
            if size:
                batches.append(Batch())
            batches[-1].submissions = self.submissions[start : start + rows]
            size = 1
        batches[-1].poisoned, batches[-1].then = self.poisoned, self.then
        batches[-1].take_rows(self)
        return batches

    def halves(self) -> list[Batch]:
        """Two batches instead of this one, [] if it holds a single thing."""
        if self.orders:
            order = self.orders[0]
            return [_of_order(half) for half in order.halves()] if len(order.tasks) > 1 else []
        everything = len(self.reports) + len(self.submissions) + len(self.poisoned)
        if everything == 0 and len(self.controls) > 1:
            return self._half_rows()
        if everything <= 1:
            return []
        first, second = Batch(), Batch()
        left = everything // 2
        for name in ("reports", "poisoned", "submissions"):
            values = getattr(self, name)
            setattr(first, name, values[:left])
            setattr(second, name, values[left:])
            left = max(0, left - len(values))
        second.then = self.then
        second.take_rows(self)
        first.last_resort = second.last_resort = self.last_resort
        return [first, second]

    def _half_rows(self) -> list[Batch]:
        """Control rows alone: what stands beside them goes with the second half."""
        first, second = Batch(), Batch()
        middle = len(self.controls) // 2
        first.controls = self.controls[:middle]
        second.take_rows(self)
        second.controls, second.then = self.controls[middle:], self.then
        return [first, second]

    def failed(self, reason: str) -> Batch:
        """The single report of this batch as a failure that carries nothing that could be refused again."""
        batch = Batch()
        process = {"ok": False, "time": 0, "follows": 0, "logs": reason, "exception": reason}
        batch.reports = [
            replace(
                report, ok=False, track={"fetch": {}, "process": process}, follows=[], messages=[], items=[], task=None
            )
            for report in self.reports
        ]
        batch.then = self.then
        batch.take_rows(self)
        batch.last_resort = True
        return batch

    def take_rows(self, other: Batch) -> None:
        """What stands beside the reports and submissions of another batch is written with this one."""
        self.controls += other.controls
        self.dead_letters += other.dead_letters
        self.ticks.update(other.ticks)
        self.ending |= other.ending
        self.pauses.update(other.pauses)
        self.tolls.update(other.tolls)

    def as_dead_letters(self, reason: str, now: float) -> list[DeadLetter]:
        """What is given up, kept with the reason."""
        given_up: list[Report | NewTask] = [*self.reports, *self.poisoned, *self.submissions]
        return [_letter(value, reason, now) for value in given_up]


def _of_order(order: TaskOrder) -> Batch:
    batch = Batch()
    batch.orders = [order]
    return batch


def _letter(value: Report | NewTask, reason: str, now: float) -> DeadLetter:
    payload, is_report = codec.keepsake(value), isinstance(value, Report)
    return DeadLetter(
        kind=LetterKind.REPORT if is_report else LetterKind.SUBMISSION,
        queue=QueueName.STATUS if is_report else QueueName.NEW_TASKS,
        project=value.project,
        taskid=value.taskid,
        reason=reason,
        payload=payload[: 64 * 1024],
        size=len(payload),
        time=now,
    )
