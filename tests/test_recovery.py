"""What `bench.recovery` makes of its notes: which work was broken off, when it began again, and the table."""

import os
import time
from pathlib import Path

from pyspider_lite.bench.recovery import table
from pyspider_lite.bench.recovery_work import SLOW, Log


def test_the_notes(tmp_path: Path) -> None:
    path = tmp_path / "events"
    path.write_text(
        "began fetch a 10.0 1\nbegan fetch b 10.5 2\nbegan fetch c 11.5 3\nended fetch a 12.0 1\nended fetch c 13.5 3\n"
        "began fetch b 18.0 4\nended fetch b 20.0 4\nbegan tick t 5.0 0\nbegan tick u 19.0 0\n"
    )
    log = Log(path)
    # killed at 11: a ended all the same, b did not, c came later
    assert log.broken("fetch", 11.0) == ["b"]
    assert log.began_after("fetch", "b", 11.0) == 18.0
    assert log.began_after("fetch", "b", 18.0) == 0.0
    assert (log.latest("tick"), log.first("tick", 6.0)) == (19.0, 19.0)
    log.note("began", "process", "p")
    now = time.monotonic()
    assert log.in_hand("process", now) == [os.getpid()]
    # it may be over by the time that somebody is killed for it
    assert log.in_hand("process", now + SLOW["process"] / 2) == []
    log.note("ended", "process", "p")
    assert log.in_hand("process", now) == []
    log.close()


def test_the_table() -> None:
    figures = {"fetcher killed": [5.0, 6.04, 4.0], "leading scheduler killed": [7.0]}
    assert table([("redis-mariadb", "taskdb", figures)])[2:] == [
        "| fetcher killed | redis-mariadb |  | 5.0 s | 6.0 s | 3 |",
        "| leading scheduler killed | redis-mariadb | taskdb | 7.0 s | 7.0 s | 1 |",
    ]
