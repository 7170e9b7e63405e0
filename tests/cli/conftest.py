"""What `explain` and `cluster` are tested on; `explained_shop` and `cluster_rows` can be imported."""

import json
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import bounded_server
from pyspider_lite.message_queue.builtin_server import QueueServer
from pyspider_lite.rpc import RpcServer

sys.path.insert(0, str(Path(__file__).parent))

from explained_shop import URL, Shop

STAMP = r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d"


# --- explain ---


@pytest.fixture
def shop(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Shop]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.02)
    for name in ("TASKDB", "PROJECTDB", "RPC_SECRET"):
        monkeypatch.delenv(name, raising=False)
    with closing(Shop(tmp_path)) as shop:
        yield shop


@pytest.fixture
def said(command: Callable[..., Any], shop: Shop) -> Callable[..., str]:
    """What `explain` says of the page, with points in time as T."""

    def say(page: str = URL, project: str = "shop", *first: str) -> str:
        outcome = command(*first, "explain", project, page)
        assert (outcome.code, outcome.err) == (0, "")
        text: str = re.sub(STAMP, "T", outcome.out)
        return text

    return say


@pytest.fixture
def live(shop: Shop) -> Iterator[dict[str, Any]]:
    """What the scheduler that leads answers."""
    answer: dict[str, Any] = {
        "known": True, "asked": True, "in_flight": False, "drop": None, "dropped": {},
    }  # fmt: skip
    port = RpcServer("127.0.0.1", 0, secret="")
    port.serve({"explain": lambda project, taskid: answer if project == "shop" else {"known": False}})
    shop.lead(port.url)
    yield answer
    port.stop()


# --- cluster ---


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
