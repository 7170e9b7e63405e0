"""`check-config`: it connects to everything, lists every problem, and makes nothing. Real servers."""

import json
import os
import socket
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import __version__
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import PASSWORD
from pyspider_lite.bench.servers.zookeeper import ZooKeeper
from pyspider_lite.cli import check_config, local_checks
from pyspider_lite.cli.check_config import encoding_hint
from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.models.project import Project
from pyspider_lite.models.worker import Beat, WorkerRow


@pytest.fixture
def check(command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Checks a config.json of these options, in an empty folder."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def check(**config: Any) -> Any:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return command("-c", str(file), "check-config")

    return check


def problems(outcome: Any) -> list[str]:
    return [line.removeprefix("problem: ") for line in outcome.out.splitlines() if line.startswith("problem: ")]


def test_nothing_set_is_well_and_nothing_is_made(check: Callable[..., Any]) -> None:
    outcome = check()
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out.endswith("\nno problems found\n")
    assert os.listdir() == []
    for line in (
        "the file does not exist yet",
        "no scheduler has been here yet",
        "data-path data will be made",
        "libcurl/",
    ):
        assert line in outcome.out


@pytest.mark.parametrize("scheme", ["amqp", "kombu+pyamqp"])
def test_names_of_queues_that_belong_to_the_broker(
    check: Callable[..., Any], command: Callable[..., Any], scheme: str, tmp_path: Path
) -> None:
    outcome = check(message_queue=f"{scheme}://127.0.0.1:1//", queue_prefix="amq.")
    assert outcome.code == 2
    assert sum("queue-prefix amq.: " in problem and "choose another" in problem for problem in problems(outcome)) == 1
    daemon = command("-c", str(tmp_path / "config.json"), "processor")
    assert (daemon.code, "queue-prefix amq.: " in daemon.err) == (2, True)


@pytest.mark.parametrize(
    "url",
    [
        "redis://SECRET@127.0.0.1:1/0",
        "pyspider:SECRET@127.0.0.1",
        "mysql+taskdb:/u:SECRET@127.0.0.1",
        "mysql+taskdb//u:SECRET@127.0.0.1",
        "mysql+taskdb:u:SECRET@127.0.0.1",
        "//u:SECRET@127.0.0.1",
        "mysql+taskdb:///u:SECRET@127.0.0.1:1",
        "mysql+taskdb://u:SECRET",
        "mysql+taskdb://u@SECRET@127.0.0.1:1",
        "sqlalchemy+postgresql+taskdb://u@SECRET@127.0.0.1:1/d",
        "redis//:SECRET@127.0.0.1",
        "redis:/:SECRET@127.0.0.1",
        "SECRET@127.0.0.1:1",
        ":SECRET@127.0.0.1:1",
        ":SECRET@127.0.0.1,127.0.0.2",
        "amqp:u:SECRET@127.0.0.1",
        ["SECRET"],
    ],
)
def test_no_malformed_url_shows_its_password(check: Callable[..., Any], url: Any) -> None:
    outcome = check(
        taskdb=url, message_queue=url, coordination=url, **({"rpc-secret": url} if url == ["SECRET"] else {})
    )
    assert outcome.code == 2
    assert "SECRET" not in outcome.out + outcome.err


def test_a_full_redis_is_a_problem(check: Callable[..., Any]) -> None:
    with Redis() as redis, redis.client() as client:
        assert check(message_queue=redis.url).code == 0
        assert client.keys() == []
        client.config_set("maxmemory", "1")
        outcome = check(message_queue=redis.url)
    assert outcome.code == 2
    (problem,) = problems(outcome)
    assert problem.startswith(f"message-queue: {redis.url}: redis is full: ")


def test_a_rabbitmq_with_an_alarm_is_a_problem_and_nobody_is_to_be_started(
    check: Callable[..., Any], command: Callable[..., Any], rabbitmq: RabbitMq, tmp_path: Path
) -> None:
    """It answers everything but who publishes, so its workers live and are not heard."""
    config: dict[str, Any] = {"message_queue": rabbitmq.url, "queue_prefix": "alarmed.", "data_path": str(tmp_path)}
    assert problems(check(**config)) == []
    with closing(connect_projectdb(f"sqlite+projectdb:///{tmp_path}/project.db")) as projectdb:
        projectdb.insert(Project(name="p"))
    taskdb = connect_taskdb(f"sqlite+taskdb:///{tmp_path}/task.db")
    taskdb.lead("web:1:ab:ff", 60.0, "")
    beat = Beat(worker="web:1:ab", role="scheduler", host="web", pid=1, version=__version__)
    taskdb.put_workers([WorkerRow(beat=beat, seen=taskdb.time())])
    taskdb.close()
    assert "no fetcher is running: start one" in command("-c", str(tmp_path / "config.json"), "doctor").out
    rabbitmq.control("set_vm_memory_high_watermark", "absolute", "1000")
    try:
        outcome = check(**config)
        told = command("-c", str(tmp_path / "config.json"), "doctor")
        listed = command("-c", str(tmp_path / "config.json"), "cluster", "list")
    finally:
        rabbitmq.control("set_vm_memory_high_watermark", "0.4")
    assert outcome.code == 2
    (problem,) = problems(outcome)
    assert "takes no messages now: it is short of memory or disk (`rabbitmqctl status` says of which" in problem
    assert (told.code, problems(told)) == (1, [problem])
    assert "not checked: queues, and which workers run, because of the message-queue" in told.out
    assert listed.code == 1
    assert f"missing: a scheduler leads, but hears no worker: {problem}\n" in listed.out
    assert PASSWORD not in outcome.out + told.out + listed.out


def test_coordination(check: Callable[..., Any]) -> None:
    assert "coordination" not in check().out
    bad = check(coordination="zookeeper://")
    assert problems(bad) == ["coordination: expected zookeeper://HOST[:PORT][,HOST[:PORT]...][/PATH]"]
    with ZooKeeper() as zookeeper:
        outcome = check(coordination=zookeeper.url)
        assert (outcome.code, problems(outcome)) == (0, [])
        assert f"coordination\n    {zookeeper.url}\n    no scheduler is elected\n" in outcome.out
    (away,) = problems(check(coordination=zookeeper.url))
    assert away.startswith(f"coordination: {zookeeper.url}: ")


@pytest.mark.parametrize(
    ("config", "hint"),
    [
        (
            {"message_queue": "redis://127.0.0.1:1/0"},
            "taskdb and projectdb and resultdb in files: each machine has its own",
        ),
        (
            {f"{kind}db": f"mysql+{kind}db://u:p@127.0.0.1:1/{kind}" for kind in ("task", "project", "result")},
            "message-queue is not set: the queues are built in",
        ),
    ],
)
def test_half_a_cluster_gets_a_hint(check: Callable[..., Any], config: dict[str, str], hint: str) -> None:
    assert f"\nhint: settings: {hint}" in check(**config).out


def test_a_wrong_taskdb_is_the_fault_of_the_taskdb(check: Callable[..., Any]) -> None:
    (problem,) = problems(check(taskdb="mongodb+taskdb://h/taskdb"))
    assert problem.startswith("taskdb: mongodb+taskdb://")


def test_servers_are_asked_and_left_alone(check: Callable[..., Any], mariadb: MariaDb, redis: Redis) -> None:
    redis.client().flushall()
    urls = {kind: mariadb.url(kind, f"check_{kind}") for kind in ("taskdb", "projectdb", "resultdb")}
    before = mariadb.execute("show databases")
    outcome = check(**urls, message_queue=redis.url)
    assert (outcome.code, problems(outcome)) == (0, [])
    assert outcome.out.count("    MariaDB 1") == 3
    assert outcome.out.count("its clock differs by") == 3
    assert "queues with the prefix 'pyspider_lite.': none" in outcome.out
    assert PASSWORD not in outcome.out
    assert mariadb.execute("show databases") == before
    assert redis.client().dbsize() == 0

    taskdb = connect_taskdb(urls["taskdb"])
    taskdb.lead("web:1:ab:ff", 60.0, "")
    taskdb.put_workers(
        [WorkerRow(beat=Beat(worker=worker, role=role, host="web", pid=1), seen=taskdb.time())
         for worker, role in (("web:1:ab", "scheduler"), ("web:2:cd", "fetcher"))]
    )  # fmt: skip
    taskdb.close()
    out = check(**urls, message_queue=redis.url).out
    assert "web:1:ab:ff leads\n    scheduler web:1:ab: leading\n    fetcher web:2:cd: at work\n" in out
    assert "are written in another way than here" in out


def test_every_problem_is_listed(check: Callable[..., Any], mariadb: MariaDb) -> None:
    wrong = mariadb.url("taskdb").replace(PASSWORD, "wr%40ng")
    outcome = check(
        taskdb=wrong,
        projectdb="mysqll+projectdb://u:p@127.0.0.1/x",
        resultdb="sqlalchemy+postgresql+resultdb://u:pa@ss@127.0.0.1:1/x",
        message_queue="redis://:a/b@127.0.0.1:1/0",
        fetcher={"poolsize": "many", "fetcher-cls": "nowhere.Fetcher", "ca-file": "nope.pem"},
        queue_maxsize=-4,
        polsize=3,
        logging_config="nope.ini",
    )
    assert (outcome.code, outcome.err) == (2, "")
    found = problems(outcome)
    assert [problem.partition(":")[0] for problem in found] == [
        *["settings"] * 3, "taskdb", "projectdb", "resultdb", "message-queue", *["files"] * 2, "classes",
    ]  # fmt: skip
    assert "queue_maxsize: expected a whole number of at least 0, got -4" in found[0]
    assert 'fetcher.poolsize: expected a whole number from 1 to 10000, got "many"' in found[1]
    assert "unknown key polsize is ignored" in found[2]
    assert "Access denied" in found[3] and "a password is taken as it is" in found[3]
    assert "did you mean mysql?" in found[4]
    for problem in found[5:7]:
        assert "@ %40, / %2F" in problem
    assert found[7:9] == [
        "files: ca-file nope.pem: No such file or directory",
        "files: logging-config nope.ini: No such file or directory",
    ]
    assert "nowhere.Fetcher cannot be loaded" in found[9]
    for secret in ("wr%40ng", "pa@ss", "ss@127", "a/b"):
        assert secret not in outcome.out


def test_servers_that_do_not_answer(check: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_config, "PATIENCE", 1.0)
    with socket.create_server(("127.0.0.1", 0), backlog=16) as deaf:
        port = deaf.getsockname()[1]
        began = time.monotonic()
        outcome = check(
            taskdb=f"mysql+taskdb://u:p@127.0.0.1:{port}/x",
            projectdb=f"postgresql+projectdb://u:p@127.0.0.1:{port}/x",
            message_queue=f"amqp://u:p@127.0.0.1:{port}//",
        )
    assert time.monotonic() - began < 5
    assert outcome.code == 2
    assert [problem.rpartition(": ")[2] for problem in problems(outcome)] == ["no answer within 1 s"] * 3
    assert "SQLite" in outcome.out, "the others are shown"


@pytest.mark.parametrize(
    ("url", "kind", "hint"),
    [
        ("redis://:se/cret@host/0", "message-queue", "not encoded"),
        ("redis://:secret@host/0", "message-queue", ""),
        ("amqp://a:b@one//;amqp://c:d@two//", "message-queue", ""),
        ("amqp://a:b@one//;amqp://c:d#e@two//", "message-queue", "not encoded"),
        ("sqlalchemy+mysql+taskdb://u:p@ss@host/x", "taskdb", "not encoded"),
        ("sqlalchemy+mysql+taskdb://u:p%40ss@host/x", "taskdb", ""),
        ("mysql+taskdb://u:p@ss@host/x", "taskdb", ""),
        ("mysql+taskdb://u:p%40ss@host/x", "taskdb", "taken as it is"),
        ("mysql+taskdb://host/x", "taskdb", ""),
        ("", "taskdb", ""),
    ],
)
def test_hints_on_passwords(url: str, kind: str, hint: str) -> None:
    found = encoding_hint(url, kind)
    assert hint in found and bool(found) == bool(hint)


def test_addresses_of_this_and_of_other_machines(check: Callable[..., Any]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        out = check(
            fetcher={"xmlrpc-host": "192.0.2.1"},
            scheduler={"xmlrpc-port": port},
            health_port=0,
            data_path="/proc/no/where",
        ).out
    assert f"scheduler: XML-RPC at 127.0.0.1:{port} (in use now: a daemon that starts takes the next free one)" in out
    assert "fetcher: XML-RPC at 192.0.2.1:24444 (192.0.2.1 is no address of this machine)" in out
    assert "fetcher: 192.0.2.1 is reached from other machines and rpc-secret is not set" in out
    assert "health: 127.0.0.1, any free port" in out


def test_addresses_that_cannot_be(check: Callable[..., Any]) -> None:
    """No address at all is a problem; one of another machine is a hint, since one config.json serves all of them."""
    outcome = check(
        fetcher={"xmlrpc-host": "no such host", "proxy": "u:SECRET@127.0.0.1:99999"},
        scheduler={"xmlrpc-host": "192.0.2.1"},
        health_host="198.51.100.1",
        health_port=0,
        rpc_secret="x",
    )
    assert outcome.code == 2
    first, second = problems(outcome)
    assert first.startswith("network: fetcher.xmlrpc-host: no such host has no address: ")
    assert second == (
        "network: fetcher.proxy: the proxy '127.0.0.1:99999' is no host:port: a port is a number from 1 to 65535"
    )
    hints = [line for line in outcome.out.splitlines() if line.startswith("hint: network")]
    assert hints == [
        "hint: network: scheduler.xmlrpc-host: 192.0.2.1 is no address of this machine: a scheduler that starts here says so, and "
        "XML-RPC listens on 127.0.0.1 instead",
        "hint: network: health-host: 198.51.100.1 is no address of this machine: a daemon that starts here says so, and works without "
        "/healthz and /metrics",
    ]
    assert "SECRET" not in outcome.out


def test_a_key_that_is_given_twice(
    command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "config.json"
    file.write_text('{"queue-maxsize": 5, "fetcher": {"poolsize": 1, "poolsize": 2}, "queue_maxsize": 6}')
    outcome = command("-c", str(file), "check-config")
    assert outcome.code == 2
    assert problems(outcome) == [
        f"settings: {file}: the key poolsize is given twice in one object; the last one counts",
        f"settings: {file}: the key queue_maxsize is given twice in one object; the last one counts",
    ]


def test_the_form_of_a_logging_config(tmp_path: Path) -> None:
    file = tmp_path / "logging.ini"
    file.write_text("[loggers]\nkeys=root\n")
    assert local_checks._bad_logging(str(file)) == [f"logging-config {file}: it has no section formatters, handlers"]
    file.write_text("no ini at all")
    assert "no section headers" in local_checks._bad_logging(str(file))[0]
