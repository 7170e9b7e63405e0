"""`all`: starts one process per role on this machine, holds their queues, keeps them alive and stops them in order.

The parent does nothing else, so that no child can harm the queues: it serves them on a unix socket in the data folder unless
the settings name a broker. A child gets its settings on a pipe (passwords are on no command line), says on another pipe that it
is ready, and dies with its parent. Called by the command line; `managed_child` is the other side, in the child.
"""

import contextlib
import fcntl
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import msgspec

from pyspider_lite import exit_codes, managed_child, stop_signals
from pyspider_lite.errors import RefusedToStart
from pyspider_lite.managed_child import ChildStart
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.names import Role
from pyspider_lite.processor import descendants
from pyspider_lite.settings import Settings, queue_socket

logger = logging.getLogger(__name__)

#: who stops first: each finishes what those before it made, and the scheduler writes it all down
STOP_ORDER = (Role.FETCHER, Role.PROCESSOR, Role.RESULT_WORKER, Role.SCHEDULER)
#: what part of the drain time each of them has: callbacks take longest, and to cut one off is a pity
SHARES = {Role.FETCHER: 1 / 6, Role.PROCESSOR: 1 / 2, Role.RESULT_WORKER: 1 / 6, Role.SCHEDULER: 1 / 6}
#: of its part of the drain time a child has this for what comes after its work, seconds; at most half of it
MARGIN = 2.0
#: seconds before a child that died is started again: the first time at once, then doubled up to the longest
FIRST_WAIT, LONGEST_WAIT = 0.5, 30.0
#: the longest after a SIGKILL from outside (ours come when all stops)
KILLED_WAIT = 2.0
#: a child that lived this long starts with a clean slate, seconds
STEADY = 30.0
#: seconds after which a child is replaced that a signal has stopped (SIGSTOP): a script can do that to its processor
STOPPED = 30.0
#: seconds by which we are late ourselves when we were stopped, too
LATE = 5.0
#: seconds for the end of what scripts left behind whose processor, and the process that would have ended them, were killed
ORPHANS_WAIT = 4.0

_COMMAND = (sys.executable, "-m", "pyspider_lite", "child")
#: seconds for the end of a pipe whose other end was closed
_LAST_WORDS = 2.0


class _Exited(NamedTuple):
    child: "_Child"
    pid: int
    code: int


class _Stopped(NamedTuple):
    """A signal stopped it, or let it go on."""

    child: "_Child"
    pid: int
    stopped: bool


_Event = _Exited | _Stopped | int


class _Child:
    """One process that should live."""

    def __init__(self, role: Role, index: int) -> None:
        self.role = role
        self.index = index
        self.process: subprocess.Popen[bytes] | None = None
        #: it was ready once: whatever it dies of later, its settings were good
        self.was_ready = False
        #: an order told it to stop
        self.was_told = False
        self.started = 0.0
        self.wait = 0.0
        #: when it is to be started again, monotonic; None while it lives
        self.due: float | None = None
        #: when it is to be killed because it is stopped, monotonic; None while it runs
        self.hopeless: float | None = None

    @property
    def name(self) -> str:
        return f"{self.role}[{self.index}]"

    @property
    def alive(self) -> bool:
        return self.process is not None

    def send(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)

    def say_hold(self) -> None:
        """All is about to stop; see `managed_child.Parent`."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.write(b"\n")
                self.process.stdin.flush()

    def gone(self) -> None:
        """The process was waited for."""
        if self.process is not None and self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        self.process = self.hopeless = None


class ProcessManager:
    """All roles of one machine."""

    def __init__(self, settings: Settings, command: Sequence[str] = _COMMAND) -> None:
        self._settings = settings
        self._command = command
        self._events: queue.SimpleQueue[_Event] = queue.SimpleQueue()
        counts = settings.all
        self._children = [
            _Child(role, index)
            for role, number in (
                (Role.SCHEDULER, 1),
                (Role.RESULT_WORKER, counts.result_worker_num),
                (Role.PROCESSOR, counts.processor_num),
                (Role.FETCHER, counts.fetcher_num),
            )
            for index in range(number)
        ]

    def run(self) -> int:
        """Until a signal comes or a child cannot start: the exit code. The data folder has to exist."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_lock(self._settings.data_path))
            if not self._settings.message_queue:
                stack.enter_context(_serve_queues(queue_socket(self._settings.data_path)))
            stack.enter_context(_signals(self._events))
            stack.callback(descendants.end_orphans, ORPHANS_WAIT)
            stack.callback(self._kill, self._children)
            for child in self._children:
                self._start(child)
            return self._supervise()

    def _supervise(self) -> int:
        while True:
            event = self._next_event()
            if isinstance(event, int):
                logger.info("%s: stopping", signal.Signals(event).name)
                return self._drain(event)
            if isinstance(event, _Stopped):
                self._note_stop(event)
            elif event is not None and (code := self._bury(event)) is not None:
                self._drain(None)
                return code
            for child in self._children:
                if child.due is not None and child.due <= time.monotonic():
                    self._start(child)
                self._end_hopeless(child, time.monotonic())

    def _note_stop(self, event: _Stopped) -> None:
        child = event.child
        if child.process is not None and child.process.pid == event.pid:
            child.hopeless = time.monotonic() + STOPPED if event.stopped else None

    def _end_hopeless(self, child: _Child, now: float) -> None:
        """It cannot say that it stands still, and nothing else would end it."""
        if child.process is None or child.hopeless is None or now < child.hopeless:
            return
        if now > child.hopeless + LATE:
            # we were stopped ourselves, with it perhaps: whoever did that may let it go on as he did us
            child.hopeless = now + STOPPED
            return
        logger.error(
            "%s (pid %d) has been stopped by a signal for %.0f s (SIGSTOP; a script may have sent it): killed",
            child.name,
            child.process.pid,
            STOPPED,
        )
        child.hopeless = None
        child.process.kill()

    def _next_event(self, until: float | None = None) -> _Event | None:
        """A signal, an exit, a stop; None when a child is due or ``until`` (monotonic) has come."""
        dues = [due for child in self._children for due in (child.due, child.hopeless) if due is not None]
        if until is not None:
            dues = [until]
        timeout = max(0.0, min(dues) - time.monotonic()) if dues else None
        with contextlib.suppress(queue.Empty):
            return self._events.get(timeout=timeout)
        return None

    def _start(self, child: _Child) -> None:
        reader, writer = os.pipe()
        start = ChildStart(
            role=child.role,
            index=child.index,
            settings=self._child_settings(child.role),
            ready=writer,
            parent=os.getpid(),
        )
        child.started, child.due = time.monotonic(), None
        # a process group of its own: Ctrl-C in a terminal is for the parent, who stops them in order
        # the role is for whoever looks at the list of processes
        words = [*self._command, str(child.role)]
        process = subprocess.Popen(words, stdin=subprocess.PIPE, pass_fds=(writer,), process_group=0)
        os.close(writer)
        child.process = process
        ear = threading.Thread(target=_listen, args=(child, reader), name=f"{child.name} ear", daemon=True)
        ear.start()
        threading.Thread(target=self._watch, args=(child, process, ear), name=child.name, daemon=True).start()
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(msgspec.json.encode(start) + b"\n")
            process.stdin.flush()
        logger.info("%s started, pid %d", child.name, process.pid)

    def _child_settings(self, role: Role) -> Settings:
        """The stages of stopping share the drain time, so each child has its part of it."""
        part = self._settings.drain_timeout * SHARES[role]
        return msgspec.structs.replace(
            self._settings, message_queue=self._settings.queue_url, drain_timeout=part - min(MARGIN, part / 2)
        )

    def _watch(self, child: _Child, process: subprocess.Popen[bytes], ear: threading.Thread) -> None:
        with contextlib.suppress(ChildProcessError):  # waited for by `_kill`
            while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WSTOPPED | os.WCONTINUED | os.WNOWAIT):
                # an exit stays for Popen to wait for
                stop = os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WCONTINUED | os.WNOHANG)
                if stop is None:
                    break
                self._events.put(_Stopped(child, process.pid, stop.si_code == os.CLD_STOPPED))
        code = process.wait()
        ear.join(_LAST_WORDS)
        self._events.put(_Exited(child, process.pid, code))

    def _bury(self, event: _Exited) -> int | None:
        """Note that a child is gone, and when it is to come back; an exit code if all is to end with it."""
        child = event.child
        child.gone()
        how = f"ended by {signal.Signals(-event.code).name}" if event.code < 0 else f"ended with exit code {event.code}"
        if not child.was_ready and event.code in (exit_codes.BAD_CONFIG, exit_codes.REFUSED, exit_codes.INTERNAL):
            logger.error("%s could not start, see its message above: all others are stopped", child.name)
            return event.code
        if child.was_told:
            logger.warning(
                "%s was told to stop (`cluster stop`, XML-RPC): it is started with the next `all`", child.name
            )
            return None
        if time.monotonic() - child.started > STEADY:
            child.wait = 0.0
        child.due = time.monotonic() + child.wait
        logger.warning("%s (pid %d) %s; starting it again in %.1f s", child.name, event.pid, how, child.wait)
        # somebody killed it: it is no worse than it was
        longest = KILLED_WAIT if event.code == -signal.SIGKILL else LONGEST_WAIT
        child.wait = min(longest, max(FIRST_WAIT, child.wait * 2))
        return None

    def _drain(self, number: int | None) -> int:
        """Stop all children, stage by stage, within the drain time. A second signal stops them hard."""
        until = time.monotonic()
        for child in self._children:
            child.due = None
            if child.role == Role.SCHEDULER:
                # what it gave out now would have to be given back by those who end first, or find nobody
                child.say_hold()
        for role in STOP_ORDER:
            # what one stage leaves of its part is the next one's
            until += self._settings.drain_timeout * SHARES[role]
            stage = [child for child in self._children if child.role == role]
            for child in stage:
                child.send(signal.SIGTERM)
            second = self._wait_for(stage, until)
            if second is not None:
                self._kill(self._children)
                return exit_codes.of_signal(second)
            self._kill(stage)
        return exit_codes.DONE if number is None else exit_codes.of_signal(number)

    def _wait_for(self, stage: Iterable[_Child], until: float) -> int | None:
        """Until these are gone or it is time; a signal that came meanwhile."""
        while any(child.alive for child in stage) and time.monotonic() < until:
            event = self._next_event(until)
            if isinstance(event, int):
                return event
            if isinstance(event, _Exited):
                event.child.gone()
        return None

    def _kill(self, children: Iterable[_Child]) -> None:
        for child in children:
            if child.process is not None:
                logger.warning("%s did not end in time: killed", child.name)
                child.process.kill()
                child.process.wait()
                child.gone()


def _listen(child: _Child, reader: int) -> None:
    with open(reader, "rb", buffering=0) as pipe:
        while said := pipe.read(1):
            if said == managed_child.READY:
                child.was_ready = True
            elif said == managed_child.TOLD:
                child.was_told = True


@contextlib.contextmanager
def _lock(data_path: str) -> Iterator[None]:
    """One `all` a data folder: two would write over each other's queues."""
    file = os.path.join(data_path, ".lock")
    try:
        descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise RefusedToStart(f"data-path {data_path} cannot be written: {error.strerror}") from error
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(descriptor, 0)
        os.write(descriptor, b"%d\n" % os.getpid())
    except BlockingIOError as error:
        holder = os.read(descriptor, 20).decode(errors="replace").strip()
        os.close(descriptor)
        raise RefusedToStart(
            f"data-path {data_path} is in use by another `all`, pid {holder}: stop it, or use another data-path"
        ) from error
    except OSError as error:
        os.close(descriptor)
        raise RefusedToStart(f"data-path {data_path} cannot be written: {error.strerror}") from error
    try:
        yield
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def _serve_queues(path: str) -> Iterator[None]:
    server = QueueServer(path)
    server.start()
    try:
        yield
    finally:
        server.stop()


@contextlib.contextmanager
def _signals(events: "queue.SimpleQueue[_Event]") -> Iterator[None]:
    """Those of `stop_signals` become events, for as long as the block lasts."""
    before = {number: signal.getsignal(number) for number in stop_signals.heard()}
    for number in before:
        signal.signal(number, lambda received, frame: events.put(received))
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
