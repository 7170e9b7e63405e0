"""Runs one callback and makes its report: time limit, captured output, track (behaviour H22 to H27, P20 to P24).

Used by the child for each page. Whatever the script does, short of ending the process, comes out as a report.
"""

import contextlib
import logging
import os
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from types import FrameType, TracebackType
from typing import Any

from pyspider_lite.errors import text_of
from pyspider_lite.handler import Outcome
from pyspider_lite.log import mask_url
from pyspider_lite.models.page import Dispatch, Page
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.processor import python2, report
from pyspider_lite.processor.captured import CapturedLog
from pyspider_lite.processor.project_loader import Ask, ProjectLoader
from pyspider_lite.response import Response


class ProcessTimeout(TimeoutError):
    """What a callback gets that runs for too long (behaviour H25)."""


class TimeLimit:
    """Raises TimeoutError in the main thread when a callback runs for too long (behaviour H25), generators included (FIX X-P5)."""

    def start(self, seconds: float) -> None:
        """From now on; 0 is no limit. The handler is set each time, a script may have taken the signal."""
        if seconds > 0:
            signal.signal(signal.SIGALRM, self._ring)
            signal.setitimer(signal.ITIMER_REAL, seconds)

    def stop(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Waiting for others is nobody's fault, and must not be broken off half-way."""
        left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        try:
            yield
        finally:
            if left:
                signal.setitimer(signal.ITIMER_REAL, left)

    @staticmethod
    def _ring(number: int, frame: FrameType | None) -> None:
        raise ProcessTimeout("process timeout")


class _LogHandler(logging.Handler):
    """Writes what a script's logger says between its prints."""

    def __init__(self) -> None:
        super().__init__()
        self.log: Any = sys.stderr

    def emit(self, record: logging.LogRecord) -> None:
        self.log.write(self.format(record) + "\n")


class Runner:
    """Has the projects of one process, and runs pages one after the other."""

    def __init__(
        self,
        ask: Ask,
        *,
        log_limit: int,
        capture_stdout: bool = True,
        env: dict[str, Any] | None = None,
        send: Callable[[list[Report]], None] | None = None,
    ) -> None:
        """``send`` takes parts of a report while the callback runs."""
        self.limit = TimeLimit()
        self._handler = _LogHandler()
        self._capture = capture_stdout
        self._log_limit = log_limit
        self._loader = ProjectLoader(ask, self._handler, env)
        self._pid = os.getpid()
        self._send = send
        #: parts of the report on this page that were sent already
        self._sent = 0

    def run(self, page: Page, limit: float) -> list[Report]:
        """The report on one page, in parts if it is large."""
        started = time.perf_counter()
        self._sent = 0
        log = CapturedLog(self._log_limit)
        response = Response.from_fetch(page.response)
        outcome: Outcome | BaseException = ProcessTimeout("process timeout")
        with self._capturing(log):
            try:
                try:
                    outcome = self._call(page, response, limit)
                except (
                    BaseException
                ) as error:  # the script did not load, or it was late in a place where nobody listens
                    outcome = error
                finally:
                    self.limit.stop()
            except ProcessTimeout:
                pass  # it came when all was over
        if os.getpid() != self._pid:
            os._exit(0)  # the script forked, and this is the copy
        seconds = time.perf_counter() - started
        if isinstance(outcome, BaseException):
            log.write(format_exception(outcome))
            reason = describe(outcome) or type(outcome).__name__
            return [report.failure(page, reason, log.text(), seconds, see(response, failed=True))]
        try:
            return report.parts(make_report(page, response, outcome, log, seconds), self._sent)
        except Exception as error:  # what it produced cannot be sent
            reason = f"what the callback produced cannot be sent: {error}"
            log.write(reason)
            return [report.failure(page, reason, log.text(), seconds, see(response, failed=True))]

    def _call(self, page: Page, response: Response, limit: float) -> Outcome:
        self.limit.start(limit)
        task = page.task
        project = self._loader.get(task.project, task.project_md5sum)
        project.env["debug"] = task.debug
        send = partial(self._send_links, task) if self._send is not None else None
        outcome: Outcome = project.handler._run_task(task_dict(task), response, send)
        return outcome

    def _send_links(self, task: Dispatch, links: list[NewTask]) -> bool:
        """Links of a callback that still runs, as parts of its report. Not from a thread of the script, nor from a process that it
        forked: the channel is ours."""
        if self._send is None or os.getpid() != self._pid or threading.current_thread() is not threading.main_thread():
            return False
        begun = Report.of(
            task,
            follows=[with_generation(link, task.generation) for link in links],
        )
        cut = report.first_parts(begun, self._sent)
        self._sent += len(cut)
        self._send(cut)
        return True

    @contextlib.contextmanager
    def _capturing(self, log: CapturedLog) -> Iterator[None]:
        stdout = sys.stdout
        if self._capture:
            sys.stdout = log
            self._handler.log = log
        else:
            self._handler.log = _Both(log, sys.stderr)
        try:
            yield
        finally:
            sys.stdout = stdout
            self._handler.log = sys.stderr
            if not self._capture:
                with contextlib.suppress(OSError, ValueError):
                    stdout.flush()


class _Both:
    def __init__(self, *streams: Any) -> None:
        self._streams = streams

    def write(self, text: str) -> None:
        for stream in self._streams:
            stream.write(text)


def make_report(page: Page, response: Response, outcome: Outcome, log: CapturedLog, seconds: float) -> Report:
    """All that the callback produced as one value."""
    task = page.task
    exception = None
    if outcome.exception is not None:
        exception = describe(outcome.exception) + python2.hint(outcome.exception, outcome.traceback or "")
        log.write(format_failure(task.project, exception or type(outcome.exception).__name__, outcome.traceback))
    failed = exception is not None
    return Report.of(
        task,
        ok=not failed,
        track={
            "fetch": report.fetch_track(page.response, see(response, failed), failed),
            "process": report.process_track(
                seconds,
                exception,
                log.text(),
                follows=outcome.sent + len(outcome.follows),
                shown=outcome.results_shown,
                dropped=outcome.dropped,
                error=type(outcome.exception).__name__ if outcome.exception is not None else "",
            ),
            "save": outcome.save,
        },
        follows=[with_generation(follow, task.generation) for follow in outcome.follows],
        messages=outcome.messages,
        items=outcome.items,
        task=report.new_task(task) if outcome.items else None,
        no_status=outcome.no_status,
        suspect=task.suspect,
        retry_after=page.response.retry_after,
        info=outcome.info,
    )


def with_generation(task: NewTask, generation: str) -> NewTask:
    """A callback knows its project, not which of the projects of that name it is."""
    return NewTask(task.taskid, task.project, task.url, task.schedule, task.fetch, task.process, generation)


def task_dict(task: Dispatch) -> dict[str, Any]:
    """The task as scripts see it (behaviour S6)."""
    return {
        "taskid": task.taskid,
        "project": task.project,
        "url": task.url,
        "status": task.status,
        "schedule": task.schedule,
        "fetch": task.fetch,
        "process": task.process,
        "track": task.track,
        "lastcrawltime": task.lastcrawltime,
        "group": task.group,
        "project_md5sum": task.project_md5sum,
        "project_updatetime": task.project_updatetime,
    }


def see(response: Response, failed: bool) -> report.FetchSeen:
    """What the track needs of the response; a script may have done anything to it."""
    try:
        return report.FetchSeen(
            ok=response.isok(),
            encoding=response.known_encoding,
            text=response.text if failed else "",
        )
    except Exception:
        return report.FetchSeen(ok=False)


def describe(error: BaseException) -> str:
    """What the failed callback says of it (behaviour P22)."""
    text = text_of(error)
    if not text and isinstance(error, MemoryError):
        text = "out of memory"
    return text


def format_failure(project: str, exception: str, trace: str | None) -> str:
    """The lines that a failed callback leaves at the end of its log."""
    stamp = time.strftime("%y%m%d %H:%M:%S")
    text = f"[E {stamp} <{project}>] {exception}\n{trace or ''}"
    return mask_url(text.rstrip().replace("\n", "\n    ")) + "\n"


def format_exception(error: BaseException) -> str:
    """The traceback from the script's first line on: ours above it says nothing to its author."""
    try:
        return "".join(traceback.format_exception(type(error), error, _from_script(error.__traceback__)))
    except BaseException as broken:  # its __str__, its __cause__ ...
        return f"{type(error).__name__} (no traceback: {type(broken).__name__})\n"


def _from_script(trace: TracebackType | None) -> TracebackType | None:
    step = trace
    while step is not None:
        if step.tb_frame.f_code.co_filename.startswith("<") and "importlib" not in step.tb_frame.f_code.co_filename:
            return step
        step = step.tb_next
    return None
