"""What servers of the tests leave behind when they are closed: nothing."""

import contextlib
import re
import time
from pathlib import Path

import pytest

from pyspider_lite.bench import processes
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.servers.server import Server


def shared_memory(server: PostgreSql) -> tuple[str, set[Path]]:
    """The id of its System V segment, and its files in /dev/shm."""
    assert server.process is not None
    segment = (server.folder / "data" / "postmaster.pid").read_text().split("\n")[6].split()[1]
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return segment, {Path(path) for path in re.findall(r"/dev/shm/PostgreSQL\S+", maps)}


def segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


def at_work(folder: Path) -> list[str]:
    """Programs that were started with this HOME."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if f"HOME={folder}\0".encode() in (process / "environ").read_bytes():
                found.append((process / "comm").read_text().strip())
    return found


class Unready(RabbitMq):
    """It is not waited for."""

    def ping(self) -> None:
        pass


def test_a_rabbitmq_that_is_killed_while_it_starts_leaves_nothing() -> None:
    """Shells start one another, and each of them forks."""
    server = Unready()
    try:
        for wait in (0.0, 0.01, 0.03, 0.1, 0.3, 1.0):
            server.start()
            time.sleep(wait)
            server.kill()
            assert at_work(server.folder) == ["epmd"]
    finally:
        server.close()
    assert at_work(server.folder) == []


@pytest.mark.parametrize("kind", [MariaDb, PostgreSql, RabbitMq, Redis])
def test_nothing_of_a_server_that_was_killed_runs(kind: type[Server]) -> None:
    with kind() as server:
        assert server.process is not None
        running = processes.tree(server.process.pid)
        server.kill()
        assert [pid for pid in running if not processes.over(pid)] == []


@pytest.mark.parametrize("before", ["freeze", "kill"])
def test_postgresql_leaves_no_shared_memory(before: str) -> None:
    server = PostgreSql()
    with server:
        segment, files = shared_memory(server)
        assert segment in segments() and files and all(file.exists() for file in files)
        getattr(server, before)()
    assert segment not in segments()
    assert not [file for file in files if file.exists()]
    assert not server.folder.exists()
