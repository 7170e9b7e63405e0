"""One child and the pages that it runs, one after the other: begins them, watches their limits, and ends the child where it must. Used by
the processor, which has one lane for pages in general, and sets it aside with a page that takes long.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence

from msgspec import Struct

from pyspider_lite.models.page import Page
from pyspider_lite.models.report import Report
from pyspider_lite.processor import descendants, report
from pyspider_lite.processor.child_process import ChildDied, ChildOptions, ChildProcess
from pyspider_lite.processor.pipe import Done, Job, NeedScript, Part, Run, Script

logger = logging.getLogger(__name__)

#: seconds between two looks at what the child occupies
LOOK_INTERVAL = 0.25
#: seconds from the first page on within which the child begins the next without asking
AHEAD = 0.05
#: seconds that the next part of a report may wait for others
PART_WAITS = 1.0
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
    """A page is over, or it is not and this is a part of what it will report."""

    page: Page
    #: the parts of its report
    reports: list[Report]
    #: bytes that they take
    size: int
    ended: bool = True
    #: seconds, if it is over
    took: float = 0.0


class Lane:
    """`begin` pages, then `look` until they are over. ``bring`` answers the child's question for a script, or raises Drained."""

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
        #: the page that runs, and those that come after it
        self._pages: list[Page] = []
        #: time.monotonic() when the page that runs began, as far as we know
        self._started = 0.0
        self._limit = 0.0
        self._deadline = 0.0
        #: the child has the pages; after this time it begins none of them any more
        self._sent = False
        self._until = 0.0
        #: the child waits, although there may be pages left: they were not quick
        self.idle = False
        #: the page that runs sends its report in parts: time.monotonic() of the last one
        self._part_at: float | None = None
        #: since when the next one has to wait
        self._waits_since: float | None = None
        #: what the child waits for
        self._question: NeedScript | None = None
        #: a child that had this page died, perhaps for another reason: it gets a second one, and no third
        self._second: Page | None = None
        self._next_look = 0.0
        self._strays = descendants.Strays()
        #: of this child, once a page is over in it: projects that it ran, and how many pages of each failed since one did not
        self._failed: Counter[str] = Counter()
        self._counted_pid = 0

    @property
    def page(self) -> Page | None:
        """The page that runs."""
        return self._pages[0] if self._pages else None

    @property
    def runs(self) -> bool:
        """Its callback has begun, as far as we know: nothing is waited for that is not its own."""
        return self._sent and not self.idle and self._question is None

    @property
    def pages(self) -> list[Page]:
        """That, and those that its child may begin after it."""
        return self._pages

    @property
    def runs_for(self) -> float:
        """Seconds since that began."""
        return time.monotonic() - self._started

    def start(self) -> None:
        """Have a child. Raises ChildDied."""
        self.child.start()

    def begin(self, pages: Sequence[Page]) -> None:
        """The pages are the child's from the next `look` on."""
        self._pages.extend(pages)
        self._sent = self.idle = False
        self._next(time.monotonic())

    def _next(self, now: float) -> None:
        if not self._pages:
            return
        self._started, self._part_at, self._waits_since = now, None, None
        self._limit = time_limit(self._pages[0], self._options.process_time_limit)
        self._deadline = now + (self._limit + self._options.hard_after if self._limit else float("inf"))

    @property
    def may_wait(self) -> bool:
        """What comes next is one of many parts of a report, and it is not long that it waits."""
        return self._part_at is not None and time.monotonic() - self._part_at < PART_WAITS

    def wait(self) -> None:
        """It does: its callback is not late for that."""
        if self._waits_since is None:
            self._waits_since = time.monotonic()

    def take_back(self) -> list[Page]:
        """The pages that have not begun, which are no longer ours. None of them while the child may still begin one."""
        if self._sent and time.monotonic() < self._until + LOOK_INTERVAL:
            return []
        begun = 0 if self.idle else 1
        waiting = self._pages[begun:]
        del self._pages[begun:]
        return waiting

    def put_off(self, seconds: float) -> None:
        """Nothing could be done for so long, and is not late for that."""
        self._deadline += seconds

    def look(self, timeout: float) -> list[Over]:
        """The pages that are over, as far as that is known within ``timeout`` seconds. Raises Drained."""
        assert self._pages
        try:
            return self._look(timeout)
        except ChildDied as error:
            self._forget_child()
            page = self._pages[0]
            alone = self._counted_pid != self.child.pid
            if self._second is page or (alone and not error.unread and not error.outside):
                return [self._fail(str(error))]
            # it died while idle, or of what a page before left behind in it, or somebody killed it: the page begins once more, in a
            # child that has run no other
            logger.warning("the child is replaced: %s", error)
            self._second = page
            return []
        except Drained:
            raise
        except Exception as error:
            # a page that upsets us must not come back for ever
            logger.exception("%s: an error in the processor", self.page.task.url if self.page else "")
            return self._kill(f"processor: {type(error).__name__}: {error}")

    def _look(self, timeout: float) -> list[Over]:
        if self._waits_since is not None:
            self.put_off(time.monotonic() - self._waits_since)
            self._waits_since = None
        if not self._sent:
            self._send()
        if self._question:
            self.child.send(self._bring(self._question))
            self._question = None
        over: list[Over] = []
        for message, size in self.child.receive(max(0.001, min(timeout, self._deadline - time.monotonic()))):
            if isinstance(message, NeedScript):
                # answered by the next look: what is over may not wait for a database
                self._question = message
            elif self._pages:
                over.append(self._said(message, size))
        if self._pages and (reason := self._passed_limit()):
            over += self._kill(reason)
        if reason := self._spoilt():
            logger.warning("the child is replaced: %s", reason)
            over += self._end_child()
        return over

    def _send(self) -> None:
        self.child.start()
        self._until = time.monotonic() + AHEAD
        # one that begins once more has the child to itself
        pages = self._pages[:1] if self._second is self._pages[0] else self._pages
        jobs = [Job(page, time_limit(page, self._options.process_time_limit)) for page in pages]
        self.child.send(Run(jobs=jobs, until=self._until))
        self._sent, self.idle = True, False

    def abandon(self) -> list[Page]:
        """End the child; the pages that it did not finish."""
        pages, self._pages = self._pages, []
        self._forget_child()
        self.child.kill()
        return pages

    def yield_cpu(self) -> None:
        """Let others go first from now on. That cannot be taken back, so the child is to be ended before it does something else."""
        descendants.yield_cpu([self.child.pid, *self.child.started()])

    def tidy(self) -> None:
        """Between two pages: end a child that should not run another one."""
        if not self.child.alive or time.monotonic() < self._next_look:
            return
        passed = self._occupies_too_much()
        if not passed and self._strays.used(self.child.pid, self.child.started()) > STRAY_CPU:
            passed = f"limit of {STRAY_CPU:g} s of CPU for threads and processes that callbacks left behind"
        if passed:
            logger.warning("the child is replaced: it has passed the %s; it ran %s", passed, self._whose())
            self.child.kill()

    def _passed_limit(self) -> str:
        """Why the page that runs has to be ended, or "". A quick one is not blamed for what those before it left behind."""
        now = time.monotonic()
        if now >= self._deadline:
            return f"process killed: {self._limit:g} s limit"
        if now < self._next_look or self.runs_for < LOOK_INTERVAL:
            return ""
        passed = self._occupies_too_much()
        return f"process killed: {passed}" if passed else ""

    def _occupies_too_much(self) -> str:
        """The limit that the child and what it started have passed. Asked four times a second, however short the pages are."""
        self._next_look = time.monotonic() + LOOK_INTERVAL
        if self._options.memory_limit > 0 and self.child.exceeds(self._options.memory_limit):
            return f"{self._options.memory_limit >> 20} MiB memory limit"
        if self.child.processes() > MAX_PROCESSES:
            return f"limit of {MAX_PROCESSES} processes"
        return ""

    def _kill(self, reason: str) -> list[Over]:
        """End the child for the page that runs. If that was over by then, the one that had begun after it is not to blame, and runs
        again."""
        page = self.page
        over = self._end_child()
        if page is not None and self.page is page:
            over.append(self._fail(reason))
        return over

    def _end_child(self) -> list[Over]:
        """What was over by then is not lost; the pages that are left are another child's."""
        over = [self._said(message, 0) for message in self.child.end() if self._pages]
        self._forget_child()
        return over

    def _forget_child(self) -> None:
        self._sent, self.idle, self._question = False, False, None

    def _fail(self, reason: str) -> Over:
        page = self._pages[0]
        return self._over([report.failure(page, reason, reason, self.runs_for)], 0)

    def _said(self, message: Part | Done, size: int) -> Over:
        if isinstance(message, Done):
            return self._done(message, size)
        self._part_at = time.monotonic()
        return Over(page=self._pages[0], reports=message.reports, size=size, ended=False)

    def _done(self, done: Done, size: int) -> Over:
        self.idle = not done.more
        self._sent = self._sent and done.more
        self._count(self._pages[0], done.reports[-1].ok)
        return self._over(done.reports, size)

    def _over(self, reports: list[Report], size: int) -> Over:
        took = self.runs_for
        page = self._pages.pop(0)
        self._next(time.monotonic())
        return Over(page=page, reports=reports, size=size, took=took)

    def _count(self, page: Page, ok: bool) -> None:
        if self._counted_pid != self.child.pid:
            self._counted_pid = self.child.pid
            self._failed.clear()
        project = page.task.project
        self._failed[project] = 0 if ok or not report.glance(page.response).ok else self._failed[project] + 1

    def _spoilt(self) -> str:
        """One script may have spoilt the child for another, by what it did to a module or to the process: how that shows, or ""."""
        if not self.child.alive or self._counted_pid != self.child.pid or len(self._failed) < 2:
            return ""
        project, failed = max(self._failed.items(), key=lambda item: item[1])
        if failed < FAILED_IN_A_ROW:
            return ""
        return f"{failed} pages of {project} failed in a row, and it ran {self._whose()}"

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
