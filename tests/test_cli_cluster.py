"""`cluster`: what is missing, how it is shown, whom an order means, and half of it when a server is away."""

import json
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import message_queue, orders
from pyspider_lite.cli import cluster, cluster_view
from pyspider_lite.cli.cluster_view import View
from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import Leader
from pyspider_lite.errors import ConfigError
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.models.batch import StatusBatch
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.worker import Alone, Beat, OrderKind, WorkerRow
from pyspider_lite.rpc import RpcServer
from pyspider_lite.scheduler import roster as roster_module
from pyspider_lite.scheduler.roster import Roster

NOW = 1_000_000.0


def row(role: str, worker: str = "", age: float = 1.0, **said: Any) -> WorkerRow:
    worker = worker or f"web:{role}:ab"
    said = {"version": "1.0", "config_hash": "cafe", "pool_size": 100, **said}
    return WorkerRow(beat=Beat(worker=worker, role=role, host=worker.partition(":")[0], pid=1, **said), seen=NOW - age)


def view(*rows: WorkerRow, leads: bool = True, **fields: Any) -> View:
    leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=NOW + (5 if leads else -5), rpc="http://web:23333/")
    return View(now=NOW, leader=leader, workers=list(rows), depths={"status_queue": 2}, config_hash="cafe", **fields)


ALL = tuple(row(role) for role in ("scheduler", "fetcher", "processor", "result_worker"))


# --- what is missing ----------------------------------------------------------------------------------------------------


def test_a_complete_cluster_misses_nothing() -> None:
    assert cluster_view.missing(view(*ALL)) == []


@pytest.mark.parametrize("role", ["fetcher", "processor", "result_worker"])
def test_a_role_that_is_missing_silent_or_paused(role: str) -> None:
    others = [one for one in ALL if one.beat.role != role]
    assert cluster_view.missing(view(*others)) == [f"no {role} is running"]
    assert cluster_view.missing(view(*others, row(role, age=30))) == [f"no {role} is running"]
    paused = [row(role, state="paused"), row(role, "db:1:cd", state="drained")]
    assert cluster_view.missing(view(*others, *paused)) == [f"all {role}s are paused"]
    assert cluster_view.missing(view(*others, *paused, row(role, "x:1:cd"))) == []
    waits = row(role, "x:1:cd", waiting={"redis://db/0": NOW - 9})
    assert cluster_view.missing(view(*others, *paused, waits)) == [f"every {role} waits for redis://db/0"]
    assert cluster_view.missing(view(*ALL, waits)) == []


def test_no_leader_and_no_workers() -> None:
    (first, second) = cluster_view.missing(view(*ALL, leads=False))
    assert (first, second[:31]) == ("no scheduler leads", "nobody hears the other workers ")
    assert cluster_view.missing(view(leads=False)) == ["no scheduler is running"]
    (sentence,) = cluster_view.missing(view(ALL[0]))
    assert sentence.startswith("a scheduler leads, but hears no worker: do they run")
    (sentence,) = cluster_view.missing(
        view(row("scheduler", waiting={"redis://db/0": NOW - 9}), row("fetcher", age=30))
    )
    assert sentence == "a scheduler leads, but hears no worker while it waits for redis://db/0"
    alone = row("scheduler", alone=Alone("shop", "t", NOW - 9))
    assert cluster_view.missing(view(alone))[0].startswith("a scheduler leads, but hears no worker: do they run")
    assert cluster_view.notes(view(alone), alone) == ["all waits for shop:t, which goes alone, since 9 s"]


def test_what_cannot_be_asked_is_missing_too() -> None:
    half = View(depths={"status_queue": 2}, problems=["taskdb: away"])
    assert cluster_view.missing(half) == ["taskdb: away"]
    assert list(cluster_view.as_lines(half)) == ["queues: status_queue 2", "missing: taskdb: away"]


def test_a_leader_that_was_killed_is_no_stand_by() -> None:
    killed = {age: row("scheduler", age=age, state="leading") for age in (4.0, 7.0)}
    assert [cluster_view.state(view(one, leads=False), one) for one in killed.values()] == ["lost the lead", "silent"]
    lines = list(cluster_view.as_lines(view(killed[7.0], leads=False)))
    assert "silent for 7 s" in lines[1]
    assert "leader: nobody; until 5 s ago it was web:scheduler:ab, epoch 3" in lines
    assert not [line for line in lines if line.startswith("standing by")]
    assert cluster_view.missing(view(killed[7.0], leads=False))[0] == "no scheduler is running"


def test_a_leader_that_gave_the_lead_back() -> None:
    """As `cluster stop scheduler` has it do."""
    free = view(row("scheduler", age=90.0, state="leading"), leads=False)
    free.leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=0.0, rpc="")
    lines = list(cluster_view.as_lines(free))
    assert "leader: nobody; the last one, web:scheduler:ab, epoch 3, gave the lead back" in lines


def test_a_lead_that_nobody_can_have() -> None:
    """The database's clock went back, or somebody wrote the row."""
    held = view(*ALL)
    held.leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=NOW + 5000, rpc="")
    assert cluster_view.missing(held)[0] == "no scheduler can lead, because the leader row is held: run doctor"
    assert "leader: nobody; the row gives the lead to web:scheduler:ab for another 83 min" in "\n".join(
        cluster_view.as_lines(held)
    )


def test_workers_are_not_looked_for_while_the_queues_do_not_answer() -> None:
    dumb = view(ALL[0])
    dumb.depths = None
    assert cluster_view.missing(dumb) == ["a scheduler leads, but hears no worker while it waits for the message-queue"]


def test_nobody_ever_led() -> None:
    assert "leader: nobody, and there was none yet" in list(cluster_view.as_lines(View(now=NOW, workers=[])))


def test_a_scheduler_that_cannot_write_is_asked_what_it_waits_for() -> None:
    mute = row("scheduler", age=300, state="leading")
    seen = view(mute, leads=False, answers={"web:scheduler:ab": {"sqlite:///task.db": 1000.0}})
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1000.0))
    assert cluster_view.missing(seen)[:2] == [
        "no scheduler leads",
        f"scheduler web:scheduler:ab waits for sqlite:///task.db since {stamp}",
    ]
    assert cluster_view.state(seen, mute) == "waiting"
    assert cluster_view.notes(seen, mute)[0].startswith("waits for sqlite:///task.db since ")


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


# --- how it is shown ----------------------------------------------------------------------------------------------------


def test_notes_tell_the_odd_ones() -> None:
    away = {"waiting": {"redis://db/0": NOW - 300}, "reasons": {"redis://db/0": "refused"}}
    odd = row("fetcher", "db:1:cd", config_hash="beef", version="0.9", **away)
    seen = view(*ALL, odd)
    assert cluster_view.notes(seen, odd) == [
        "other config",
        "other version",
        "waits for redis://db/0 since 5 min: refused",
    ]
    assert cluster_view.notes(seen, ALL[1]) == []
    assert cluster_view.notes(view(row("scheduler", config_hash="beef")), row("scheduler", config_hash="beef")) == []


def test_a_hundred_workers_are_a_table() -> None:
    fetchers = [
        row("fetcher", f"web{number:03}:1:ab", load=number, rpc="http://10.0.0.1:24444/") for number in range(100)
    ]
    gone = [row("fetcher", f"old{number:03}:1:ab", age=4000 + number) for number in range(50)]
    stand_by = row("scheduler", "spare:1:ab")
    lines = list(cluster_view.as_lines(view(*fetchers, *ALL, *gone, stand_by)))
    assert lines[0].split() == ["role", "worker", "version", "load", "rate", "beat", "state", "rpc"]
    assert lines[1].split() == ["scheduler", "spare:1:ab", "1.0", "0", "1", "s", "ago", "standing", "by"]
    assert lines[2].split()[:2] == ["scheduler", "web:scheduler:ab"]
    assert len(lines) == 112 and max(len(line) for line in lines[:100]) < 110
    assert lines[107] == cluster_view.NOT_LISTED
    assert lines[108].startswith("not heard for long, forgotten after a day: fetcher old000:1:ab (67 min), ")
    assert lines[108].endswith(" and 40 more")
    assert lines[109:] == [
        "leader: web:scheduler:ab, epoch 3, http://web:23333/",
        "standing by: spare:1:ab",
        "queues: status_queue 2",
    ]


def test_records_are_for_programs() -> None:
    records = list(cluster_view.as_records(view(*ALL[:2])))
    assert [record["type"] for record in records] == ["worker", "worker", "leader", "queues", "missing", "missing"]
    assert (records[0]["state"], records[1]["state"]) == ("leading", "at work")
    assert records[2]["epoch"] == 3
    assert records[3] == {"type": "queues", "status_queue": 2}
    assert records[4]["text"] == "no processor is running"


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


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """Of a cluster whose broker is a builtin queue server, which the test may start."""
    file = tmp_path / "config.json"
    file.write_text(
        json.dumps({"data_path": str(tmp_path / "data"), "message_queue": f"builtin://{tmp_path}/queue.sock"})
    )
    (tmp_path / "data").mkdir()
    return file


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[None]:
    server = QueueServer(f"{tmp_path}/queue.sock")
    server.start()
    yield
    server.stop()


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
