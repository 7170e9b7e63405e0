"""`send_message`: how it finds the scheduler, and what it says when it does not. (That the message arrives: e2e/test_rpc_ports.)"""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import bounded_server
from pyspider_lite.database import connect_taskdb
from pyspider_lite.rpc import RpcServer

SENT = ("send_message", "shop", "hello")


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.02)
    for name in ("TASKDB", "RPC_SECRET"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


@pytest.fixture
def scheduler() -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """The URL of a port with send_task, and the tasks that came."""
    sent: list[dict[str, Any]] = []
    port = RpcServer("127.0.0.1", 0, secret="s3cret")
    port.serve({"send_task": lambda task: sent.append(task) or True})
    yield port.url, sent
    port.stop()


def lead(folder: Path, rpc: str, host: str, term: float = 60.0) -> None:
    """Somebody leads."""
    (folder / "data").mkdir(exist_ok=True)
    with closing(connect_taskdb(f"sqlite+taskdb:///{folder}/data/task.db")) as taskdb:
        taskdb.lead(f"{host}:7:abc", term, rpc)


@pytest.mark.behaviour("C56", "C68", "C86", "C98")
def test_the_task_that_is_sent(
    folder: Path, command: Callable[..., Any], scheduler: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    url, sent = scheduler
    with_secret = url.replace("//", "//:s3cret@")
    lead(folder, url, socket.gethostname())
    for line in (
        ("--rpc-secret", "s3cret", *SENT),
        ("send_message", "--scheduler-rpc", with_secret, "shop", "hello"),
        ("--scheduler-rpc", with_secret, *SENT),
        ("--rpc-secret", "s3cret", "send-message", "shop", "hello"),
    ):
        assert command(*line) == (0, "sent to shop\n", "")
    monkeypatch.setenv("RPC_SECRET", "s3cret")
    monkeypatch.setenv("SCHEDULER_PORT_23333_TCP_ADDR", "127.0.0.1")
    monkeypatch.setenv("SCHEDULER_PORT_23333_TCP_PORT", url.rstrip("/").rpartition(":")[2])
    lead(folder, "http://127.0.0.1:1/", "elsewhere")
    assert command(*SENT).code == 0
    assert len(sent) == 5
    assert all(task == sent[0] for task in sent)
    assert sent[0] == {
        "taskid": "0a6b3171c7ff97a5a38728d7ede43d2c",
        "project": "shop",
        "url": "data:,on_message",
        "fetch": {"save": ["__command__", "hello"]},
        "process": {"callback": "_on_message"},
    }


def test_what_it_says_when_there_is_no_scheduler_to_tell(
    folder: Path, command: Callable[..., Any], scheduler: Any
) -> None:
    url, sent = scheduler

    def said(text: str, code: int, *line: str) -> None:
        outcome = command(*(line or SENT))
        assert text in outcome.err
        assert (outcome.code, outcome.out) == (code, "")
        assert "Traceback" not in outcome.err

    said("there is no database", 2)
    lead(folder, url, "elsewhere", term=0.0)
    said("no scheduler leads now: start one, or set scheduler-rpc", 3)
    lead(folder, url, socket.gethostname())
    said("answers: 401", 2)
    said("answers: 401 the secret is wrong", 2, "--rpc-secret", "wrong", *SENT)
    said("expected http://HOST:PORT/", 2, "--scheduler-rpc", "127.0.0.1:23333", *SENT)
    said("does not answer: Connection refused", 3, "--scheduler-rpc", "http://127.0.0.1:1/", *SENT)
    assert sent == []


@pytest.mark.parametrize(
    ("rpc", "text"),
    [
        ("http://127.0.0.1:1/", " and listens on its loopback only: run the command there, or set xmlrpc-host and"),
        ("http://192.168.1.3:1/", ", at http://192.168.1.3:1/"),
        ("", ", without XML-RPC"),
    ],
)
def test_nobody_here_but_one_elsewhere(folder: Path, command: Callable[..., Any], rpc: str, text: str) -> None:
    lead(folder, rpc, "elsewhere")
    outcome = command("--scheduler-rpc", "http://127.0.0.1:1/", *SENT)
    assert outcome.code == 3
    assert f"does not answer: Connection refused; the scheduler leads on host elsewhere{text}" in outcome.err


def test_two_machines_of_one_name(folder: Path, command: Callable[..., Any]) -> None:
    """A machine that was cloned: the leader's loopback is not ours, and its name does not tell."""
    name = socket.gethostname()
    lead(folder, "http://127.0.0.1:1/", name)
    outcome = command(*SENT)
    assert outcome.code == 3
    assert (
        f"does not answer: Connection refused; the scheduler leads on host {name}, at http://127.0.0.1:1/; that is the name of this "
        "machine: if another one has it too, give each a name of its own"
    ) in outcome.err


@pytest.mark.parametrize(
    ("rpc", "text"),
    [
        ("", "the scheduler that leads, elsewhere:7:abc, runs without XML-RPC"),
        ("http://127.0.0.1:23333/", "listens for XML-RPC on its own machine, elsewhere, only: run this there, or set"),
        ("http://[::1]:23333/", "listens for XML-RPC on its own machine, elsewhere, only"),
    ],
)
def test_a_leader_that_cannot_be_spoken_to(folder: Path, command: Callable[..., Any], rpc: str, text: str) -> None:
    lead(folder, rpc, "elsewhere")
    outcome = command(*SENT)
    assert text in outcome.err
    assert outcome.code == 2
