"""The process from which a processor's children are forked, so that a new one is there in milliseconds.

It has the heavy modules loaded and one thread, so that forking is safe also when the processor is a thread among others (``one``).
It has at most one child, and it alone kills and reaps it, with its process group and all orphans of it (demands UC15):
pids cannot be mistaken. When the processor is gone (its end of the control socket closed) child and zygote end; when the zygote is
gone the kernel kills the child.

A script may stop the processor (SIGSTOP), and a supervisor sees only what ends: under one, the zygote kills a processor that has been stopped
for `STOPPED` seconds (`all` would have been faster).

Control socket: ``spawn`` with the child's end of a socket pair and of a pipe, ``kill``; answers ``pid N``, ``exit STATUS MOST_BYTES_OF_MEMORY``.
"""

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import time
import traceback

from pyspider_lite.processor import descendants

_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
#: a child is the first to go when the machine runs out of memory
_OOM_SCORE = "500"
#: seconds after which a processor is killed that a signal has stopped, and how often that is looked at: nobody tells a child of it
STOPPED, _LOOKS = 40.0, 8


def _prctl(option: int, value: int) -> None:
    """Linux only; elsewhere the ends of the sockets are all that tells one side of the other's death."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


class Zygote:
    """The loop of the zygote process."""

    def __init__(self, control: socket.socket, options: dict[str, object], stopped: float = STOPPED) -> None:
        self._control = control
        self._options = options
        self._pid = 0
        self._buffer = b""
        self._descriptors: list[int] = []
        self._woken, self._wake = os.pipe()
        self._patience = stopped
        #: the processor, and since when it has been stopped, as far as we saw, monotonic
        self._processor = os.getppid()
        self._stopped: float | None = None
        self._looked = 0.0

    def run(self) -> None:
        """Serve until the processor is gone."""
        os.set_blocking(self._wake, False)
        signal.set_wakeup_fd(self._wake, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        control = self._control.fileno()
        look = self._patience / _LOOKS if _is_supervised(self._processor) else None
        while True:
            ready, _, _ = select.select([control, self._woken], [], [], look)
            if look is not None:
                self._look_at_processor(time.monotonic(), look)
            if self._woken in ready:
                os.read(self._woken, 4096)
                self._reap(block=False)
            if control in ready and not self._serve():
                break
        self._kill()

    def _look_at_processor(self, now: float, interval: float) -> None:
        # we may have been stopped with it, and whoever did that lets it go on as he did us
        late = now - self._looked > 3 * interval
        self._looked = now
        if late or not descendants.is_stopped(self._processor):
            self._stopped = None
        elif self._stopped is None:
            self._stopped = now
        elif now - self._stopped >= self._patience and os.getppid() == self._processor:
            text = f"processor {self._processor} has been stopped by a signal for {self._patience:.0f} s (SIGSTOP; a script may have sent it): killed"
            print(text, file=sys.stderr, flush=True)
            os.kill(self._processor, signal.SIGKILL)

    def _serve(self) -> bool:
        try:
            data, descriptors, _, _ = socket.recv_fds(self._control, 4096, 4)
        except OSError:  # the processor was killed
            return False
        if not data:
            return False
        self._descriptors += descriptors
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            if line == b"spawn":
                self._kill()
                self._spawn(self._descriptors.pop(0), self._descriptors.pop(0))
            elif line == b"kill":
                self._kill()
        return True

    def _spawn(self, descriptor: int, wake: int) -> None:
        self._pid = os.fork()
        if not self._pid:
            self._become_child(descriptor, wake)
        os.close(descriptor)
        os.close(wake)
        self._tell(f"pid {self._pid}")

    def _become_child(self, descriptor: int, wake: int) -> None:
        status = 1
        try:
            os.setsid()
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            self._control.close()
            os.close(self._woken)
            os.close(self._wake)
            with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
                file.write(_OOM_SCORE)
            from pyspider_lite.processor import child

            child.main(socket.socket(fileno=descriptor), wake, self._options)
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            with contextlib.suppress(Exception):
                sys.stderr.flush()
            os._exit(status)

    def _kill(self) -> None:
        if self._pid:
            with contextlib.suppress(OSError):
                os.killpg(self._pid, signal.SIGKILL)
            with contextlib.suppress(OSError):
                os.kill(self._pid, signal.SIGKILL)
            self._reap(block=True)

    def _reap(self, *, block: bool) -> None:
        """Report the end of the child; its group dies before its pid is free for others."""
        if self._pid:
            ended = os.waitid(os.P_PID, self._pid, os.WEXITED | os.WNOWAIT | (0 if block else os.WNOHANG))
            if ended is not None:
                with contextlib.suppress(OSError):
                    os.killpg(self._pid, signal.SIGKILL)
                _, status, usage = os.wait4(self._pid, 0)
                self._pid = 0
                self._tell(f"exit {os.waitstatus_to_exitcode(status)} {usage.ru_maxrss * 1024}")
        if not self._pid:
            self._reap_orphans()

    def _reap_orphans(self) -> None:
        """Whatever the child's descendants left behind was handed to us, their subreaper."""
        for _ in range(1000):
            for orphan in descendants.children(os.getpid()):
                with contextlib.suppress(OSError):
                    os.kill(orphan, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
            except ChildProcessError:
                return

    def _tell(self, line: str) -> None:
        with contextlib.suppress(OSError):
            self._control.sendall(line.encode() + b"\n")


def _is_supervised(processor: int) -> bool:
    """Whether supervisord or systemd (248 or later) started it, and will start it again."""
    return "SUPERVISOR_ENABLED" in os.environ or os.environ.get("SYSTEMD_EXEC_PID") == str(processor)


def main() -> None:
    """Entry of the process: ``argv`` is the descriptor of the control socket and the options as JSON."""
    control = socket.socket(fileno=int(sys.argv[1]))
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    # SIGTERM is meant for the processor, which decides; it comes here only when someone signals every process
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    descendants.mark(descendants.ZYGOTE)
    _prctl(_PR_SET_CHILD_SUBREAPER, 1)
    # a script may have stopped us: then we would not see that the processor is gone, and stay for ever with all that it started
    _prctl(_PR_SET_PDEATHSIG, signal.SIGCONT)
    from pyspider_lite.processor import child

    child.preload()
    gc.collect()
    gc.freeze()
    Zygote(control, json.loads(sys.argv[2])).run()
