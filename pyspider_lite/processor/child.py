"""The processor's child: the only process in which scripts run. Entered by the zygote after the fork.

It gets pages over its socket, one at a time, and answers each with its report; it ends when the socket closes.
"""

import contextlib
import gc
import resource
import signal
import socket
import sys
from typing import Any

import msgspec

from pyspider_lite import old_names
from pyspider_lite.processor.child_process import ChildOptions
from pyspider_lite.processor.pipe import Channel, Done, NeedScript, Run, Script
from pyspider_lite.processor.runner import Runner

#: a page makes thousands of objects that die with it, and few cycles
_GC_THRESHOLD = 20_000


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


def main(sock: socket.socket, options: dict[str, Any]) -> None:
    """Serve pages until the processor closes the socket."""
    settings = msgspec.convert(options, ChildOptions)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    gc.set_threshold(_GC_THRESHOLD, 20, 20)
    if settings.memory_limit:
        backstop = 2 * settings.memory_limit
        resource.setrlimit(resource.RLIMIT_DATA, (backstop, backstop))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    Child(Channel(sock), settings).serve()
    sys.stdout.flush()


class Child:
    """The loop: a page in, a report out."""

    def __init__(self, channel: Channel, options: ChildOptions) -> None:
        self._channel = channel
        env = {
            "result_queue": None,
            "enable_stdout_capture": options.capture_stdout,
            "process_time_limit": options.process_time_limit,
            "debug": False,
        }
        self._runner = Runner(self._ask, log_limit=options.log_limit, capture_stdout=options.capture_stdout, env=env)

    def serve(self) -> None:
        """Until the other side is gone."""
        with contextlib.suppress(EOFError, ConnectionError):
            while True:
                message, _ = self._channel.receive(Run)
                reports = self._runner.run(message.page, message.limit)
                _unset()
                self._channel.send(Done(reports))

    def _ask(self, project: str, md5: str, known: str) -> Script:
        with self._runner.limit.paused():
            self._channel.send(NeedScript(project=project, md5=md5, known=known))
            answer, _ = self._channel.receive(Script)
            return answer


def _unset() -> None:
    """What a callback left set and would hit the next one, of whichever project that is."""
    sys.settrace(None)
    sys.setprofile(None)
    for timer in (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF):
        signal.setitimer(timer, 0)
    signal.pthread_sigmask(signal.SIG_SETMASK, [])
