"""One child and the page that it runs: begins it, watches its limits, and ends the child where it must. Used by the processor, which has
one lane for pages in general, and sets it aside with a page that takes long.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable

from msgspec import Struct

from pyspider_lite.models import Page, Report
from pyspider_lite.processor import descendants, report
from pyspider_lite.processor.child_process import ChildDied, ChildOptions, ChildProcess
from pyspider_lite.processor.pipe import Done, NeedScript, Run, Script

logger = logging.getLogger(__name__)

#: seconds between two looks at what the child occupies
LOOK_INTERVAL = 0.25
#: processes that scripts may have started and that still run
MAX_PROCESSES = 100
#: seconds of CPU that threads and processes may use which callbacks left behind
STRAY_CPU = 1.0
#: pages of one project that fail one after the other in a child that ran others, too: one of those may have spoilt it
FAILED_IN_A_ROW = 5


class Options(Struct, frozen=True, kw_only=True):
    """Settings of a processor (design, section 15)."""

    #: seconds that a callback may run unless its task says otherwise; 0 for no limit
    process_time_limit: float = 30.0
    #: seconds from the exception inside the callback to the end of the child
    hard_after: float = 5.0
    #: bytes that the child may occupy; 0 for no limit
    memory_limit: int = 1 << 30
    #: characters kept of what a callback prints and logs
    log_limit: int = 64 * 1024
    #: seconds for the page in hand after `stop`
    drain_timeout: float = 30.0
    #: prints go into the task's log; False: to the real stdout, as in `one` (behaviour C95)
    capture_stdout: bool = True


class Drained(Exception):
    """The processor has to end before the page can go on."""


class Over(Struct, frozen=True):
    """A page is over."""

    page: Page
    #: the parts of its report
    reports: list[Report]
    #: bytes that they take
    size: int


class Lane:
    """`begin` a page, then `look` until it is over. ``bring`` answers the child's question for a script, or raises Drained."""

    def __init__(self, options: Options, bring: Callable[[NeedScript], Script]) -> None:
        self._options = options
        self._bring = bring
        self.child = ChildProcess(
            ChildOptions(
                memory_limit=options.memory_limit,
                log_limit=options.log_limit,
                capture_stdout=options.capture_stdout,
                process_time_limit=options.process_time_limit,
            )
        )
        #: the page that runs
        self.page: Page | None = None
        self._started = 0.0
        #: seconds that the last page took
        self.took = 0.0
        self._limit = 0.0
        self._deadline = 0.0
        #: the child has it, and is the second one that does
        self._sent = self._second = False
        self._next_look = 0.0
        self._strays = descendants.Strays()
        #: of this child: projects that it ran, and how many pages of each failed since one did not
        self._failed: Counter[str] = Counter()
        self._counted_pid = 0

    @property
    def runs_for(self) -> float:
        """Seconds since the page began."""
        return time.monotonic() - self._started

    def start(self) -> None:
        """Have a child. Raises ChildDied."""
        self.child.start()

    def begin(self, page: Page) -> None:
        """The page is the child's from the next `look` on."""
        self.page, self._started = page, time.monotonic()
        self._sent = self._second = False
        self._limit = time_limit(page, self._options.process_time_limit)
        self._deadline = self._started + (self._limit + self._options.hard_after if self._limit else float("inf"))

    def put_off(self, seconds: float) -> None:
        """Nothing could be done for so long, and is not late for that."""
        self._deadline += seconds

    def look(self, timeout: float) -> Over | None:
        """What became of the page, if that is known within ``timeout`` seconds. Raises Drained."""
        assert self.page is not None
        page = self.page
        try:
            return self._look(page, timeout)
        except ChildDied as error:
            if self._second or not (error.unread or error.outside):
                return self._fail(page, str(error))
            # it died while idle, or somebody killed it: the page gets a second child, but no third
            logger.warning("the child is replaced: %s", error)
            self._second, self._sent = True, False
            return None
        except Drained:
            raise
        except Exception as error:
            # a page that upsets us must not come back for ever
            logger.exception("%s: an error in the processor", page.task.url)
            return self._kill(page, f"processor: {type(error).__name__}: {error}")

    def _look(self, page: Page, timeout: float) -> Over | None:
        if not self._sent:
            self.child.start()
            self.child.send(Run(page=page, limit=self._limit))
            self._sent = True
        answer = self.child.receive(max(0.001, min(timeout, self._deadline - time.monotonic())))
        if answer is not None:
            message, size = answer
            if isinstance(message, Done):
                return self._end(page, message.reports, size)
            self.child.send(self._bring(message))
        now = time.monotonic()
        if now >= self._deadline:
            return self._kill(page, f"process killed: {self._limit:g} s limit")
        if now >= self._next_look and (passed := self._passed_limit(now)):
            return self._kill(page, f"process killed: {passed}")
        return None

    def abandon(self) -> Page | None:
        """End the child; the page that it did not finish."""
        page, self.page = self.page, None
        self.child.kill()
        return page

    def yield_cpu(self) -> None:
        """Let others go first from now on. That cannot be taken back, so the child is to be ended before it does something else."""
        descendants.yield_cpu([self.child.pid, *self.child.started()])

    def tidy(self) -> None:
        """Between two pages: end a child that should not run another one."""
        now = time.monotonic()
        if not self.child.alive or now < self._next_look:
            return
        passed = self._passed_limit(now)
        if not passed and self._strays.used(self.child.pid, self.child.started()) > STRAY_CPU:
            passed = f"limit of {STRAY_CPU:g} s of CPU for threads and processes that callbacks left behind"
        if passed:
            logger.warning("the child is replaced: it has passed the %s; it ran %s", passed, self._whose())
            self.child.kill()

    def _passed_limit(self, now: float) -> str | None:
        """The limit that the child and what it started have passed. Asked four times a second, however short the pages are."""
        self._next_look = now + LOOK_INTERVAL
        if 0 < self._options.memory_limit < self.child.resident():
            return f"{self._options.memory_limit >> 20} MiB memory limit"
        if self.child.processes() > MAX_PROCESSES:
            return f"limit of {MAX_PROCESSES} processes"
        return None

    def _kill(self, page: Page, reason: str) -> Over:
        self.child.kill()
        return self._fail(page, reason)

    def _fail(self, page: Page, reason: str) -> Over:
        return self._end(page, [report.failure(page, reason, reason, self.runs_for)], 0)

    def _end(self, page: Page, reports: list[Report], size: int) -> Over:
        self.page, self.took = None, self.runs_for
        if self.child.alive:
            self._count(page, reports[-1].ok)
        return Over(page=page, reports=reports, size=size)

    def _count(self, page: Page, ok: bool) -> None:
        """One script may have spoilt the child for another, by what it did to a module or to the process."""
        if self._counted_pid != self.child.pid:
            self._counted_pid = self.child.pid
            self._failed.clear()
        project = page.task.project
        self._failed[project] = 0 if ok or not report.glance(page.response).ok else self._failed[project] + 1
        if self._failed[project] >= FAILED_IN_A_ROW and len(self._failed) > 1:
            logger.warning(
                "the child is replaced: %d pages of %s failed in a row, and it ran %s",
                FAILED_IN_A_ROW,
                project,
                self._whose(),
            )
            self.child.kill()

    def _whose(self) -> str:
        names = sorted(self._failed)
        return ", ".join(names[:20]) + (f" and {len(names) - 20} more projects" if len(names) > 20 else "")


def time_limit(page: Page, default: float) -> float:
    """Seconds that the callback may run, 0 for no limit: the task's own limit, else the processor's (behaviour H25)."""
    value = page.task.process.get("process_time_limit")
    if value is None or isinstance(value, bool):
        return default
    try:
        return max(0.0, float(value))
    except (TypeError, ValueError):
        return default
