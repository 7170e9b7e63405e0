"""`cluster`: whom an order means, what the commands do, and half of it when a server is away."""

import os
import re
import socket
import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from cluster_rows import ALL, row

from pyspider_lite import message_queue, orders
from pyspider_lite.cli import cluster
from pyspider_lite.database import connect_taskdb
from pyspider_lite.errors import ConfigError
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.worker import Beat, OrderKind, WorkerRow
from pyspider_lite.rpc import RpcServer
from pyspider_lite.scheduler import roster as roster_module
from pyspider_lite.scheduler.roster import Roster

# --- whom an order means ------------------------------------------------------------------------------------------------

SOME = [*ALL, row("fetcher", "db:24:cd"), row("processor", "db:25:ce")]


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        (["db:24:cd"], ["db:24:cd"]),
        (["db:25"], ["db:25:ce"]),
        (["db", "db:24"], ["db:24:cd", "db:25:ce"]),
        (["fetcher"], ["web:fetcher:ab", "db:24:cd"]),
        (["web"], ["web:fetcher:ab", "web:processor:ab", "web:result_worker:ab"]),
    ],
)
def test_names_beginnings_hosts_and_roles(words: list[str], meant: list[str]) -> None:
    assert [row.beat.worker for row in cluster.choose(words, SOME, OrderKind.PAUSE)] == meant


@pytest.mark.parametrize(
    ("word", "sentence"),
    [
        ("db:", "db: is the beginning of 2 workers (db:24:cd, db:25:ce): give more of it"),
        ("fetchr", "there is no worker, host or role fetchr; did you mean fetcher?"),
        ("nobody", "there is no worker, host or role nobody; `cluster list` shows who is there"),
        ("scheduler", "a scheduler cannot pause, only stop: pause the fetchers (`cluster pause fetcher`)"),
    ],
)
def test_what_means_nobody(word: str, sentence: str) -> None:
    with pytest.raises(ConfigError) as raised:
        cluster.choose([word], SOME, OrderKind.PAUSE)
    assert str(raised.value).startswith(sentence)


def test_a_scheduler_is_never_paused() -> None:
    with pytest.raises(ConfigError, match="a scheduler is never paused"):
        cluster.choose(["scheduler"], SOME, OrderKind.RESUME)


def test_a_scheduler_may_be_stopped() -> None:
    assert cluster.choose(["scheduler"], SOME, OrderKind.STOP) == [ALL[0]]


# --- the commands -------------------------------------------------------------------------------------------------------


def test_forged_names_do_not_steer_the_terminal(command: Callable[..., Any], config: Path, tmp_path: Path) -> None:
    forged = "evil\x1b[2J\x9b\u202e\nmissing: nothing"
    with closing(connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")) as taskdb:
        beat = Beat(worker=forged, role="fetcher", host=forged, pid=1, waiting={forged: 1.0})
        taskdb.put_workers([WorkerRow(beat=beat, seen=taskdb.time())])
        letter = DeadLetter(kind="message", queue=forged, project=forged, reason=forged, payload=b"x", time=1.0)
        with taskdb.begin(None) as transaction:
            transaction.add_dead_letters([letter])
    for words in (["cluster", "list"], ["cluster", "list", "--format", "jsonl"], ["dead-letter", "list"]):
        outcome = command("-c", str(config), *words)
        assert "evil" in outcome.out + outcome.err, words
        assert all(line.isprintable() for line in (outcome.out + outcome.err).split("\n")), words
    assert "missing: nothing" not in command("-c", str(config), "cluster", "list").out.splitlines()


def test_commands_print_in_one_place() -> None:
    folder = Path(cluster.__file__).parent
    texts = {file.name: file.read_text() for file in folder.glob("*.py")}
    assert {name: text.count("click.echo(") for name, text in texts.items() if "click.echo(" in text} == {
        "terminal.py": 1
    }
    assert not [name for name, text in texts.items() if re.search(r"\bprint\(", text)]


def test_no_database_yet(command: Callable[..., Any], config: Path) -> None:
    outcome = command("-c", str(config), "cluster", "list")
    assert outcome.code == 2
    assert "nothing was crawled here yet" in outcome.err


def test_the_half_that_answers_is_shown(command: Callable[..., Any], config: Path, tmp_path: Path) -> None:
    with closing(connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")) as taskdb:
        taskdb.workers()
    outcome = command("-c", str(config), "cluster", "list")
    assert (outcome.code, outcome.err) == (1, "")
    lines = outcome.out.splitlines()
    assert lines[0] == "leader: nobody, and there was none yet"
    assert lines[1].startswith(f"missing: message-queue builtin://{tmp_path}/queue.sock: the built-in queue server at ")
    assert lines[2] == "missing: no scheduler is running"


@pytest.mark.usefixtures("broker")
def test_silent_schedulers_are_asked(command: Callable[..., Any], config: Path, tmp_path: Path) -> None:
    server = RpcServer("127.0.0.1", 0)
    server.serve({"waiting": lambda: {"the disk of the taskdb": 1000.0}})
    try:
        with closing(connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")) as taskdb:
            now = taskdb.time()
            for worker, age in (("old:1:ab", 500.0), ("new:2:ab", 100.0)):
                beat = Beat(worker=worker, role="scheduler", host=socket.gethostname(), pid=1, rpc=server.url)
                taskdb.put_workers([WorkerRow(beat=beat, seen=now - age)])
        out = command("-c", str(config), "cluster", "list").out
    finally:
        server.stop()
    assert "missing: scheduler new:2:ab waits for the disk of the taskdb since 19" in out
    assert "old:1:ab waits" not in out


@pytest.mark.usefixtures("broker")
def test_a_database_that_drops_packets(
    command: Callable[..., Any], config: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster, "_PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0), backlog=8) as deaf:
        url = f"mysql+taskdb://u:secret@127.0.0.1:{deaf.getsockname()[1]}/taskdb"
        began = time.monotonic()
        outcome = command("-c", str(config), "--taskdb", url, "cluster", "list")
    assert time.monotonic() - began < 5
    assert outcome.code == 1
    queues, missing = outcome.out.splitlines()
    assert queues.startswith("queues: newtask_queue 0, status_queue 0, ")
    assert missing == f"missing: taskdb {url.replace('secret', '***')}: no answer within 1 s"


class Role:
    """Follows orders as roles do."""

    def __init__(self, heartbeat: Heartbeat) -> None:
        self._heartbeat = heartbeat
        self.stopped = threading.Event()

    def pause(self) -> None:
        self._heartbeat.set_state("paused")

    def drain(self) -> None:
        self._heartbeat.set_state("draining")

    def resume(self) -> None:
        self._heartbeat.set_state("")

    def stop(self) -> None:
        self.stopped.set()


@pytest.mark.usefixtures("broker")
def test_orders_are_given_and_awaited(
    command: Callable[..., Any], config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(orders, "LOOK_EACH", 0.1)
    monkeypatch.setattr(roster_module, "_EACH", 0.1)
    broker = f"builtin://{tmp_path}/queue.sock"
    taskdb = connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")
    leader = WorkerInfo.make("scheduler", 0)
    leading = taskdb.copy()
    leading.lead(f"{leader.worker}:ff", 9.0, "")
    roster = Roster(taskdb.copy(), lambda: leader.beat(state="leading"), lambda: True)
    info = WorkerInfo.make("fetcher", 10)
    worker = Heartbeat(
        info,
        lambda: message_queue.connect(broker, "status_queue"),
        orders=lambda: message_queue.connect(broker, orders.queue_name(info.worker)),
    )
    role = Role(worker)
    worker.obey(role)
    ending = threading.Event()

    def hear() -> None:
        from pyspider_lite import codec

        queue = message_queue.connect(broker, "status_queue")
        while not ending.is_set():
            leading.lead(f"{leader.worker}:ff", 9.0, "")
            for received in queue.get(10, 0.1):
                roster.hear(codec.decode(received.body, StatusBatch))
        queue.close()
        leading.close()

    hearing = threading.Thread(target=hear)
    hearing.start()
    roster.start()
    worker.start()
    try:
        end = time.monotonic() + 10
        while len(taskdb.workers()) < 2:
            assert time.monotonic() < end
            time.sleep(0.02)
        words = ("-c", str(config), "cluster")
        outcome = command(*words, "list")
        assert outcome.code == 1
        assert "missing: no processor is running" in outcome.out
        assert command(*words, "pause", os.uname().nodename).out == f"fetcher {info.worker}: paused\n"
        assert "missing: all fetchers are paused" in command(*words, "list").out
        worker.take("scheduler2fetcher", "b", [("shop", "t", 1)])
        monkeypatch.setattr(cluster, "ORDER_PATIENCE", 1.0)
        outcome = command(*words, "drain", info.worker)
        assert (outcome.code, outcome.out) == (0, f"fetcher {info.worker}: draining, 1 tasks still in hand\n")
        monkeypatch.setattr(cluster, "ORDER_PATIENCE", 10.0)
        worker.forget([("shop", "t", 1)])
        assert command(*words, "drain", "fetcher").out == f"fetcher {info.worker}: drained, nothing in hand\n"
        assert command(*words, "resume", "fetcher").out == f"fetcher {info.worker}: at work\n"
        monkeypatch.setattr(cluster, "ORDER_PATIENCE", 1.0)
        outcome = command(*words, "stop", info.worker[:-2])
        assert (outcome.code, outcome.out) == (0, f"fetcher {info.worker}: stopping, 0 tasks still in hand\n")
        assert role.stopped.is_set()
        worker.stop(2.0)
        end = time.monotonic() + 10
        while len(taskdb.workers()) > 1:
            assert time.monotonic() < end
            time.sleep(0.02)
        outcome = command(*words, "stop", "scheduler")
        assert outcome.code == 3
        assert f"scheduler {leader.worker}: not seen to stop within 1 s" in outcome.out
    finally:
        ending.set()
        hearing.join(5)
        worker.stop(1.0)
        roster.stop()
        taskdb.close()
