"""The processor's child: the only process in which scripts run. Entered by the zygote after the fork.

It gets pages over its socket, runs one after the other and answers each with its report; it ends when the socket closes.
"""

import contextlib
import gc
import os
import resource
import signal
import socket
import sys
import time
from typing import Any

import msgspec

from pyspider_lite import old_names
from pyspider_lite.models.report import Report
from pyspider_lite.processor import descendants
from pyspider_lite.processor.child_process import ChildOptions
from pyspider_lite.processor.pipe import Channel, Done, NeedScript, Part, Run, Script
from pyspider_lite.processor.runner import Runner

#: a page makes thousands of objects that die with it, and few cycles
_GC_THRESHOLD = 20_000
#: seconds for which what is done may wait before the processor is woken
_WAKE = 0.01


def preload() -> None:
    """Load, before forking, what scripts use most."""
    old_names.install()
    import lxml.html
    import pyquery
    import requests

    import pyspider_lite.handler
    import pyspider_lite.response

    # one page of each kind through the parsers: what they make on first use is made once, for all children
    for module in (lxml.html, pyquery, requests, pyspider_lite.handler, pyspider_lite.response):
        assert module


def main(sock: socket.socket, wake: int, options: dict[str, Any]) -> None:
    """Serve pages until the processor closes the socket; a byte into the pipe ``wake`` has it look."""
    os.set_blocking(wake, False)
    settings = msgspec.convert(options, ChildOptions)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    if settings.memory_limit:
        backstop = 2 * settings.memory_limit
        resource.setrlimit(resource.RLIMIT_DATA, (backstop, backstop))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    descendants.mark(descendants.SCRIPT)
    Child(Channel(sock), wake, settings).serve()
    sys.stdout.flush()


class Child:
    """The loop: pages in, reports out."""

    def __init__(self, channel: Channel, wake: int, options: ChildOptions) -> None:
        self._channel = channel
        self._pipe = wake
        self._woken = 0.0
        env = {
            "result_queue": None,
            "enable_stdout_capture": options.capture_stdout,
            "process_time_limit": options.process_time_limit,
            "debug": False,
        }
        self._runner = Runner(
            self._ask, log_limit=options.log_limit, capture_stdout=options.capture_stdout, env=env, send=self._part
        )

    def serve(self) -> None:
        """Until the other side is gone."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                self._run(self._channel.receive(Run))

    def _run(self, run: Run) -> None:
        for number, job in enumerate(run.jobs, 1):
            reports = self._runner.run(job.page, job.limit)
            _unset()
            now = time.monotonic()
            more = number < len(run.jobs) and now < run.until
            self._channel.send(Done(reports, more), self._wake)
            if not more:
                self._wake()
                return
            if now - self._woken >= _WAKE:
                self._wake()

    def _wake(self) -> None:
        self._woken = time.monotonic()
        # it is full, so there is enough to wake it; or a callback closed it, and then the processor looks at the socket
        with contextlib.suppress(OSError):
            os.write(self._pipe, b".")

    def _part(self, reports: list[Report]) -> None:
        # the processor reads them when status_queue has room: that is no time of the callback's
        with self._runner.limit.paused():
            self._channel.send(Part(reports), self._wake)
            self._wake()

    def _ask(self, project: str, md5: str, known: str) -> Script:
        with self._runner.limit.paused():
            self._channel.send(NeedScript(project=project, md5=md5, known=known), self._wake)
            self._wake()
            return self._channel.receive(Script)


def _unset() -> None:
    """What a callback left set and would hit the next one, of whichever project that is."""
    sys.settrace(None)
    sys.setprofile(None)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
