"""The built-in queue server: its clients die, it goes away and comes back, strangers talk to it."""

import os
import signal
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from pyspider_lite.errors import ConfigError, QueueError, RefusedToStart
from pyspider_lite.message_queue import store
from pyspider_lite.message_queue.builtin import LENGTH, REQUEST, BuiltinQueue, Op
from pyspider_lite.message_queue.builtin_server import QueueServer


@pytest.fixture
def server(tmp_path: Path) -> Iterator[QueueServer]:
    server = QueueServer(str(tmp_path / "queues"))
    server.start()
    yield server
    server.stop()


def until(condition: Callable[[], object], seconds: float = 10.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.01)


def client(path: str, code: str, *, late_ack: bool = False) -> subprocess.Popen[str]:
    """Another process with the queue ``q`` open; it has said "ready" when this returns."""
    script = (
        "import time\nfrom pyspider_lite.message_queue.builtin import BuiltinQueue\n"
        f"q = BuiltinQueue({path!r}, 'q', late_ack={late_ack})\n"
        "say = lambda: print('ready', flush=True)\n" + code
    )
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    return process


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(10)
    assert process.stdout is not None
    process.stdout.close()


def test_the_socket_is_for_its_user_only(server: QueueServer) -> None:
    assert stat.S_IMODE(os.stat(server.path).st_mode) == 0o600


@pytest.mark.parametrize("late_ack", [False, True])
def test_a_client_killed_while_it_waits_takes_no_message(server: QueueServer, late_ack: bool) -> None:
    process = client(server.path, "say(); q.get(1, 60)", late_ack=late_ack)
    until(lambda: server._queues["q"].getters if "q" in server._queues else None)
    process.send_signal(signal.SIGSTOP)  # it cannot read; the message must not go to it once it is dead
    kill(process)
    with closing(BuiltinQueue(server.path, "q")) as queue:
        queue.put(b"x", 1)
        assert [received.body for received in queue.get(1, 5)] == [b"x"]


def test_a_message_half_written_to_a_client_that_is_killed_comes_back(server: QueueServer) -> None:
    large = os.urandom(5_000_000)  # more than the socket's buffer takes
    process = client(server.path, "say(); q.get(1, 60)")
    until(lambda: server._queues["q"].getters if "q" in server._queues else None)
    process.send_signal(signal.SIGSTOP)
    with closing(BuiltinQueue(server.path, "q")) as queue:
        queue.put(large, 1)
        queue.put(b"second", 1)
        assert queue.qsize() == 1
        kill(process)
        until(lambda: queue.qsize() == 2)
        assert [received.body for received in queue.get(1, 5) + queue.get(1, 5)] == [large, b"second"]


def test_what_a_killed_client_did_not_acknowledge_comes_back_in_order(server: QueueServer) -> None:
    with closing(BuiltinQueue(server.path, "q")) as queue:
        for n in range(5):
            queue.put(b"%d" % n, 1)
        process = client(server.path, "got = q.get(3, 5); q.ack(got[1:2]); say(); time.sleep(60)", late_ack=True)
        assert queue.qsize() == 2
        kill(process)
        until(lambda: queue.qsize() == 4)
        assert [received.body for received in queue.get(10, 5)] == [b"0", b"2", b"3", b"4"]


def test_no_message_is_lost_while_workers_are_killed_again_and_again(server: QueueServer) -> None:
    code = (
        "say()\n"
        "while got := q.get(3, 1):\n"
        "    for one in got:\n"
        "        print(one.body.decode(), flush=True)\n"
        "        q.ack([one])\n"
    )
    done: list[str] = []
    feeder = BuiltinQueue(server.path, "q", maxsize=0)
    with closing(feeder):
        for n in range(3000):
            feeder.put(b"%d" % n, 1)
        for kill_after in (1, 7, 50, 200, None):
            process = client(server.path, code, late_ack=True)
            assert process.stdout is not None
            for number, line in enumerate(process.stdout):
                if number == kill_after:
                    process.kill()
                done.append(line.strip())
            kill(process)
        assert feeder.qsize() == 0
    assert set(done) >= {str(n) for n in range(3000)}
    assert 3000 <= len(done) <= 3000 + 4  # at most the one in hand comes twice


def test_a_killed_client_that_waited_for_room_puts_nothing(server: QueueServer) -> None:
    with closing(BuiltinQueue(server.path, "q")) as queue:
        queue.put(b"x" * store.MAX_TAKE, 1)
        for _ in range(store.MAX_BYTES // store.MAX_TAKE - 1):
            queue.put(b"x" * store.MAX_TAKE, 1)
        process = client(server.path, f"say(); q.put(b'y' * {store.MAX_TAKE}, 60)")
        until(lambda: server._queues["q"].putters)
        kill(process)
        until(lambda: not server._queues["q"].putters)
        assert queue.purge() == store.MAX_BYTES // store.MAX_TAKE
        assert queue.qsize() == 0


def test_the_server_goes_away_and_comes_back(tmp_path: Path) -> None:
    first = QueueServer(str(tmp_path / "queues"))
    first.start()
    with closing(BuiltinQueue(first.path, "q", late_ack=True)) as queue:
        queue.put(b"1", 1)
        old = queue.get(1, 1)
        first.stop()
        with pytest.raises(QueueError, match=r"queues cannot be reached: "):
            queue.qsize()
        with pytest.raises(QueueError):
            queue.put(b"2", 1)
        second = QueueServer(first.path)
        second.start()
        queue.put(b"3", 1)
        new = queue.get(1, 1)
        queue.ack(old)  # the same serial, of another life: must not acknowledge b"3"
        queue.close()
        assert [received.body for received in queue.get(1, 5)] == [b"3"] == [received.body for received in new]
    second.stop()


def test_a_client_that_waits_hears_at_once_that_the_server_stops(server: QueueServer) -> None:
    caught: list[Exception] = []

    def wait() -> None:
        with closing(BuiltinQueue(server.path, "q")) as queue:
            try:
                queue.get(1, 60)
            except QueueError as error:
                caught.append(error)

    thread = threading.Thread(target=wait)
    thread.start()
    until(lambda: server._queues["q"].getters if "q" in server._queues else None)
    server.stop()
    thread.join(5)
    assert len(caught) == 1


def frame(payload: bytes) -> bytes:
    return LENGTH.pack(len(payload)) + payload


GARBAGE = {
    "http": b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    "too long": LENGTH.pack(17 * 1024 * 1024) + b"x",
    "too short": frame(b"x"),
    "empty": frame(b""),
    "unknown op": frame(REQUEST.pack(99, 1, 0, 1, 0.0) + b"q"),
    "nan seconds": frame(REQUEST.pack(Op.GET, 1, 0, 1, float("nan")) + b"q"),
    "endless": frame(REQUEST.pack(Op.GET, 1, 0, 1, float("inf")) + b"q"),
    "name is no text": frame(REQUEST.pack(Op.GET, 1, 0, 1, 1.0) + b"\xff"),
    "odd ack": frame(REQUEST.pack(Op.ACK, 1, 0, 1, 1.0) + b"q123"),
    "two at once": frame(REQUEST.pack(Op.GET, 1, 0, 1, 5.0) + b"q") * 2,
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_that_connection_only(server: QueueServer, name: str) -> None:
    with closing(BuiltinQueue(server.path, "other")) as queue, socket.socket(socket.AF_UNIX) as stranger:
        queue.put(b"x", 1)
        stranger.settimeout(5)
        stranger.connect(server.path)
        stranger.sendall(GARBAGE[name])
        with suppress(ConnectionResetError):
            assert stranger.recv(100) == b""
        connection = queue._connection
        assert [received.body for received in queue.get(1, 1)] == [b"x"]
        assert queue._connection == connection


def test_a_stranger_that_sends_byte_by_byte_is_served(server: QueueServer) -> None:
    with socket.socket(socket.AF_UNIX) as slow:
        slow.settimeout(5)
        slow.connect(server.path)
        for byte in frame(REQUEST.pack(Op.QSIZE, 1, 0, 0, 0.0) + b"q"):
            slow.sendall(bytes([byte]))
        assert struct.unpack("!IBI", slow.recv(100)) == (5, 0, 0)


def test_two_servers_do_not_share_a_path(server: QueueServer) -> None:
    with pytest.raises(RefusedToStart, match="another queue server answers there"):
        QueueServer(server.path).start()
    with closing(BuiltinQueue(server.path, "q")) as queue:
        assert queue.qsize() == 0


def test_the_socket_of_a_dead_server_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "queues")
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(path)
    server = QueueServer(path)
    server.start()
    with closing(BuiltinQueue(path, "q")) as queue:
        assert queue.qsize() == 0
    server.stop()
    assert not os.path.exists(path)


def test_a_file_that_is_no_socket_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "queues"
    path.write_text("mine")
    with pytest.raises(RefusedToStart, match="not a socket"):
        QueueServer(str(path)).start()
    assert path.read_text() == "mine"


def test_a_long_path(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 120)
    folder.mkdir()
    server = QueueServer(str(folder / "queues"))
    server.start()
    with closing(BuiltinQueue(server.path, "q")) as queue:
        queue.put(b"x", 1)
        assert queue.qsize() == 1
    server.stop()
    with pytest.raises(ConfigError, match="at most 107 bytes"):
        QueueServer(str(tmp_path / ("y" * 200))).start()


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(RefusedToStart, match="cannot listen there"):
        QueueServer(str(tmp_path / "none" / "queues")).start()
    with (
        closing(BuiltinQueue(str(tmp_path / "none" / ("x" * 120) / "queues"), "q")) as queue,
        pytest.raises(QueueError),
    ):
        queue.qsize()


def test_depths(server: QueueServer) -> None:
    with closing(BuiltinQueue(server.path, "b")) as one, closing(BuiltinQueue(server.path, "a", late_ack=True)) as two:
        one.put(b"x", 1)
        one.put(b"x", 1)
        two.put(b"x", 1)
        two.get(1, 1)
        assert one.depths() == {"a": 0, "b": 2}


def test_the_bytes_of_a_queue_are_bounded(server: QueueServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "MAX_BYTES", 1000)
    with closing(BuiltinQueue(server.path, "q", maxsize=0)) as queue, closing(BuiltinQueue(server.path, "r")) as other:
        queue.put(b"x" * 600, 0)
        with pytest.raises(QueueError):
            queue.put(b"x" * 600, 0.1)
        queue.put(b"x" * 400, 0)
        other.put(b"x" * 600, 0)
        assert len(queue.get(1, 0)) == 1
        queue.put(b"x" * 600, 0)


def test_nothing_is_kept_of_requests_that_are_over(server: QueueServer) -> None:
    with closing(BuiltinQueue(server.path, "q", maxsize=1)) as queue, closing(BuiltinQueue(server.path, "q")) as other:
        early = client(server.path, "say(); q.name = 'r'; q.get(1, 60)")  # its deadline is before all others
        until(lambda: "r" in server._queues and server._queues["r"].getters)
        queue.put(b"0", 1)
        for n in range(20):
            thread = threading.Thread(target=queue.put, args=(b"%d" % n, 300))
            thread.start()
            until(lambda: server._queues["q"].putters)
            assert len(other.get(1, 5)) == 1
            thread.join(5)
        assert len(server._deadlines) == 21
        assert not any(parked.body for _, _, parked in server._deadlines)
        kill(early)
    until(lambda: not server._peers)
    until(lambda: not server._deadlines)
