"""What the scheduler hears: what workers say goes to the leases, what is to be written goes into a batch. Pure; used by `scheduler`."""

import logging
import math
from typing import Any

from pyspider_lite import codec
from pyspider_lite.counters import Counters
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.models.batch import NewTaskBatch, StatusBatch
from pyspider_lite.models.letter import Broken, LetterKind
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim, Handover, Release
from pyspider_lite.scheduler import rules
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.dead_letters import DeadLetters, letter_of
from pyspider_lite.scheduler.inbox import Depths, Heard
from pyspider_lite.scheduler.leases import Leases
from pyspider_lite.scheduler.parts import Parts
from pyspider_lite.scheduler.project_state import ProjectRun

logger = logging.getLogger("scheduler")

#: pages batches a processor above which fetchers hold back
_HELD_BACK_OVER = 4
#: result workers wait for their database for as long as it is away, and end by themselves what takes too long
_ALWAYS_HELD_BACK = frozenset({Role.RESULT_WORKER})


class Listener:
    """``config_hash``: of the settings; workers of another one may look into other databases."""

    def __init__(
        self,
        projects: dict[str, ProjectRun],
        leases: Leases,
        parts: Parts,
        dead_letters: DeadLetters,
        counters: Counters,
        config_hash: str,
    ) -> None:
        self._projects = projects
        self._leases = leases
        self._parts = parts
        self._dead_letters = dead_letters
        self._counters = counters
        self._config_hash = config_hash
        #: messages in each queue, as measured last
        self.depths: dict[str, int] = {}
        #: roles whose workers wait for room behind them: their time limits do not count
        self.held_back: frozenset[str] = _ALWAYS_HELD_BACK

    def hear(self, heard: Heard, batch: Batch, now: float) -> None:
        """All that came in since the last step; what is to be written goes into ``batch``."""
        for sent in heard.sent:
            self._leases.sent(sent)
        for status in heard.status:
            self._hear_status(status, batch, now)
        for new, ack in heard.new:
            self._hear_new_tasks(new, ack, batch, now)
        if heard.depths is not None:
            self._hear_depths(heard.depths)

    def _hear_depths(self, depths: Depths) -> None:
        sizes = self.depths = depths.sizes
        for queue, size in sizes.items():
            if size == 0:
                self._leases.seen_empty(queue, depths.asked)
        processors = max(1, len(self._leases.pool_sizes(Role.PROCESSOR)))
        held_back = set(_ALWAYS_HELD_BACK)
        if sizes.get(QueueName.TO_PROCESSOR, 0) > _HELD_BACK_OVER * processors:
            held_back.add(Role.FETCHER)
        if sizes.get(QueueName.RESULTS, 0):
            held_back.add(Role.PROCESSOR)
        self.held_back = frozenset(held_back)

    def _hear_status(self, status: StatusBatch, batch: Batch, now: float) -> None:
        for item in status.items:
            match item:
                case Report():
                    self._hear_report(item, batch)
                case Claim():
                    self._leases.claim(item)
                case Handover():
                    self._leases.hand_over(item)
                case Beat():
                    self._hear_beat(item)
                case Release():
                    self._leases.release(item)
                case Broken():
                    self.keep(item, batch, now)

    def _hear_report(self, heard: Report, batch: Batch) -> None:
        project = self._projects.get(heard.project)
        if project is not None and project.head.generation != heard.generation:
            # of an earlier project of that name, whose runs had the same keys: it ends no lease and completes no report
            batch.reports.append(heard)
            return
        for report in self._parts.take(heard):
            batch.reports.append(report)
            if report.parts:
                self._leases.reported(report.key)
            else:
                self._leases.goes_on(report.key)

    def _hear_beat(self, beat: Beat) -> None:
        if not beat.leaving and beat.worker not in self._leases.workers:
            logger.info("%s %s is here (%s, pid %d)", beat.role, beat.worker, beat.host, beat.pid)
            if beat.config_hash and self._config_hash and beat.config_hash != self._config_hash:
                logger.warning(
                    "%s %s has the databases, broker or queue-prefix written in another way than this scheduler: if they are "
                    "others, its work is lost; two clusters on one broker need a queue-prefix each",
                    beat.role,
                    beat.worker,
                )
            for project in self._projects.values():
                project.wake_at = -math.inf
        self._leases.beat(beat)

    def _hear_new_tasks(self, new: NewTaskBatch, ack: Any, batch: Batch, now: float) -> None:
        for raw in new.tasks:
            try:
                task = codec.unpack(bytes(raw), NewTask)
                reason = rules.is_no_submission(task)
            except BrokenMessage as error:
                reason = str(error)
            if reason is None:
                batch.submissions.append(task)
            else:
                self.keep(Broken(queue=QueueName.NEW_TASKS, reason=reason, body=bytes(raw)), batch, now)
        batch.then.append(lambda plan: ack())

    def keep(self, broken: Broken, batch: Batch, now: float) -> None:
        """A message, or results, that nobody can use become a dead letter."""
        if broken.kind == LetterKind.MESSAGE:
            logger.warning("%s: a broken message was kept aside: %s", broken.queue, broken.reason)
            self._counters.event(now, "", "broken")
        self._dead_letters.keep(letter_of(broken, now), batch.dead_letters)
