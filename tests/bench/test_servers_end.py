"""What servers of the tests leave behind when they are closed: nothing."""

import re
from pathlib import Path

import pytest

from pyspider_lite.bench.servers.postgresql import PostgreSql


def shared_memory(server: PostgreSql) -> tuple[str, set[Path]]:
    """The id of its System V segment, and its files in /dev/shm."""
    assert server.process is not None
    segment = (server.folder / "data" / "postmaster.pid").read_text().split("\n")[6].split()[1]
    maps = Path(f"/proc/{server.process.pid}/maps").read_text()
    return segment, {Path(path) for path in re.findall(r"/dev/shm/PostgreSQL\S+", maps)}


def segments() -> set[str]:
    return {line.split()[1] for line in Path("/proc/sysvipc/shm").read_text().splitlines()}


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
