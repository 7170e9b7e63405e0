"""What the scheduler knows of one project while it runs: pace, info, counts, pause. Pure: every method takes ``now``."""

import math
from collections import deque
from enum import StrEnum
from typing import Any

from msgspec import Struct

from pyspider_lite.models.project import ACTIVE_PROJECT, CronJob, ProjectHead, ProjectState
from pyspider_lite.scheduler.drops import Drops
from pyspider_lite.scheduler.frontier import Window
from pyspider_lite.scheduler.token_bucket import TokenBucket

#: seconds that an automatic pause lasts (behaviour S56)
PAUSE_TIME = 300.0


class Info(Struct, frozen=True):
    """What a project's script says of itself (behaviour H63)."""

    crawl_config: dict[str, Any] = {}
    retry_delay: dict[str, float] = {}
    jobs: list[CronJob] = []
    #: False: it could not be asked, most likely because the script cannot be loaded
    answered: bool = True


class PauseState(StrEnum):
    """Automatic pause (behaviour S55, S56)."""

    FREE = "free"
    PAUSED = "paused"
    CHECKING = "checking"


class AutoPause:
    """Stops giving out a project whose last results all failed; lets a few through after a while (behaviour S55 to S57).

    ``until`` takes a pause up again that a scheduler before us began: it goes on, or its tries do.
    """

    def __init__(
        self, fail_num: int, *, pause_time: float = PAUSE_TIME, check_num: int = 3, until: float = 0.0
    ) -> None:
        self._fail_num = fail_num
        self._pause_time = pause_time
        self._check_num = check_num
        self._failures = 0
        self._checked = 0
        self._until = until
        self.state = PauseState.PAUSED if until and fail_num > 0 else PauseState.FREE
        #: why, in words
        self.reason = ""

    def record(self, ok: bool, now: float) -> PauseState | None:
        """A result came in; the new state if it changed that."""
        self._settle(now)
        before = self._until, self.state
        self._count(ok, now)
        return self.state if before != (self._until, self.state) else None

    def _count(self, ok: bool, now: float) -> None:
        if ok:
            self.resume()
            return
        self._failures += 1
        if self.state is PauseState.CHECKING:
            self._checked += 1
            if self._checked >= self._check_num:
                self._pause(now)
        elif self.state is PauseState.FREE and 0 < self._fail_num <= self._failures:
            self._pause(now)

    def resume(self) -> None:
        """Free again: a task went well, or a user wants it."""
        self._failures, self._checked, self.state = 0, 0, PauseState.FREE

    def paused(self, now: float) -> bool:
        """Nothing is to be given out."""
        self._settle(now)
        return self.state is PauseState.PAUSED

    @property
    def stored(self) -> tuple[float, str]:
        """What a scheduler after us has to know: until when, and why; 0 if it is free."""
        return (0.0, "") if self.state is PauseState.FREE else (self._until, self.reason)

    def allowance(self, now: float) -> float:
        """How many tasks may be in flight: none, or as many as are still to be tried."""
        if self.paused(now):
            return 0
        return self._check_num - self._checked if self.state is PauseState.CHECKING else math.inf

    def describe(self) -> str:
        """What happened when it began to pause."""
        if self._checked:
            return f"all {self._checked} tasks that were tried after the last pause failed"
        return f"the last {self._failures} tasks all failed"

    def until(self, now: float) -> float:
        """When it may be tried again; ``now`` if it is not paused."""
        return self._until if self.paused(now) else now

    def _pause(self, now: float) -> None:
        self.state, self._until = PauseState.PAUSED, now + self._pause_time

    def _settle(self, now: float) -> None:
        if self.state is PauseState.PAUSED and now >= self._until:
            self.state, self._checked = PauseState.CHECKING, 0


class ProjectRun:
    """One project as the scheduler sees it."""

    def __init__(
        self,
        head: ProjectHead,
        counts: ProjectState,
        *,
        window_limit: int,
        fail_pause_num: int,
        now: float,
        log_length: int = 100,
    ) -> None:
        self.head = head
        self.counts = counts
        self.bucket = TokenBucket(head.rate, head.burst, now)
        self.window = Window(window_limit)
        # who changed the project since, wants it to be tried
        lifted = head.updatetime > counts.paused_until - PAUSE_TIME
        self.pause = AutoPause(fail_pause_num, until=0.0 if lifted else counts.paused_until)
        self.pause.reason = counts.pause_reason
        self.md5 = ""
        #: None until the script has answered _on_get_info; nothing is given out before (behaviour S12)
        self.info: Info | None = None
        #: not before this time is it asked again because it can be loaded after all
        self.ask_again_at = -math.inf
        #: what it answered to a leader before us: good for the first time that we want to know
        self.answered = counts.info
        #: cron ticks until then are given out, or need not be. A leader before us has written how far it came; but what was due before
        #: the project was last changed may have been due to nobody
        self.last_tick = max(counts.last_tick, int(min(head.updatetime, now))) if counts.last_tick else int(now)
        #: when its next cron tick is due
        self.next_tick = -math.inf
        #: not before this time is it worth looking for work again
        self.wake_at = -math.inf
        #: when it was given something the last time, in turns of the dispatcher
        self.turn = 0
        #: the runs that ended last, oldest first: when, and the task as in behaviour S91
        self.log: deque[tuple[float, dict[str, Any]]] = deque(maxlen=log_length)
        #: the submissions that were dropped last
        self.drops = Drops()

    @property
    def name(self) -> str:
        return self.head.name

    @property
    def known_as(self) -> str:
        """The name of its known keys: another project of the same name has others."""
        return f"{self.head.name}:{self.head.generation}"

    @property
    def active(self) -> bool:
        """The user wants it to be worked on (behaviour S8)."""
        return self.head.status in ACTIVE_PROJECT

    def selectable(self, now: float) -> bool:
        """Tasks of it may be given out, apart from pace and due times."""
        return self.active and self.info is not None and not self.pause.paused(now)

    @property
    def finished(self) -> bool:
        """No task is due, delayed, in flight or waiting for a retry, periodic work aside (behaviour S50, UA22). Whether on_start or a
        message is under way only the table of control work knows."""
        return self.counts.finished

    def next_wake(self, now: float) -> float:
        """When this project may have a task to give out, as far as can be told now (``inf``: when something happens)."""
        if not self.active or self.info is None:
            return math.inf
        ready = now if len(self.window) or self.window.more else self.window.next_due
        return max(ready, self.bucket.next_at(now), self.pause.until(now))
