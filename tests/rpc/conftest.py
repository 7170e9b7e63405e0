"""XML-RPC servers on real sockets. `rpc_calls` can be imported."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import bounded_server, rpc

sys.path.insert(0, str(Path(__file__).parent))

from rpc_calls import LOCAL, functions


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., rpc.RpcServer]]:
    """Starts servers and stops them."""
    monkeypatch.setattr(bounded_server, "LOOK_EACH", 0.02)
    started = []

    def start(mine: Any = None, host: str = LOCAL, **options: Any) -> rpc.RpcServer:
        one = rpc.RpcServer(host, 0, **options)
        started.append(one)
        one.serve(mine or functions())
        return one

    yield start
    for one in started:
        one.stop()
