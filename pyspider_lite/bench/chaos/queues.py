"""The built-in queue server as a process of its own, so that it can be killed without its users: `python -m ...queues SOCKET`."""

import contextlib
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from pyspider_lite.errors import QueueError
from pyspider_lite.message_queue.builtin import BuiltinQueue
from pyspider_lite.message_queue.builtin_server import QueueServer

_START = 30.0


class BuiltinBroker:
    """Started and stopped like `bench.servers.server.Server`."""

    name = "builtin"

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="pyspider_lite-queues-"))
        self._socket = str(self.folder / "queue.sock")
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """For message_queue."""
        return f"builtin://{self._socket}"

    def start(self) -> None:
        """Start it and wait until it answers."""
        self.process = subprocess.Popen([sys.executable, "-m", __name__, self._socket], start_new_session=True)
        end = time.monotonic() + _START
        while not self._answers():
            if time.monotonic() > end or self.process.poll() is not None:
                raise OSError("the queue server does not start")
            time.sleep(0.05)

    def _answers(self) -> bool:
        with contextlib.closing(BuiltinQueue(self._socket, "none")) as queue, contextlib.suppress(QueueError):
            queue.depths()
            return True
        return False

    def stop(self) -> None:
        """End it in order."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """End it as a power cut does."""
        self._end(signal.SIGKILL)

    def _end(self, number: int) -> None:
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait(30)
            self.process = None

    def freeze(self) -> None:
        """Stop it from running, with its connections open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it run again."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def cut(self) -> None:
        """Nobody can cut connections within one machine but who ends one side."""
        self.kill()
        self.start()

    def close(self) -> None:
        """End it for good."""
        self.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


def main() -> None:
    """Serve until SIGTERM."""
    server = QueueServer(sys.argv[1])
    over = threading.Event()
    signal.signal(signal.SIGTERM, lambda number, frame: over.set())
    server.start()
    over.wait()
    server.stop()


if __name__ == "__main__":
    main()
