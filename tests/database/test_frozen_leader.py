"""A leader that SIGSTOP held beyond its term and SIGCONT wakes: a real process, on each product. It writes nothing any more."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError

P = "shop"
#: leads for half a second, without renewing, and goes on writing; ends after being refused 20 times
LEADER = """
import sys, time
from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import NewRow
from pyspider_lite.errors import LostLeadership
from pyspider_lite.models.task import NewTask

database = connect_taskdb(sys.argv[1])
database.open_project("shop")
epoch = database.lead("frozen", 0.5, "")
refused = number = 0
while refused < 20:
    task = NewTask(taskid=str(number), project="shop", url="u")
    try:
        with database.begin(epoch) as tx:
            tx.insert("shop", [NewRow(task=task, due=1.0, priority=0, updatetime=1.0)])
        number += 1
        print("wrote", flush=True)
    except LostLeadership:
        refused += 1
    time.sleep(0.01)  # so that it is mostly frozen outside of its transactions
print(database.renew(epoch, 9.0), database.leader().holder, flush=True)
database.resign(epoch)
database.close()
"""


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_over(stand_by: TaskDB) -> bool:
    row = stand_by.leader()
    return row is not None and row.until < stand_by.time()


def take_over(leader: "subprocess.Popen[str]", stand_by: TaskDB) -> int:
    """Freeze it, lead in its place. A process frozen within a transaction keeps the lock of an SQLite file: then once more, when it has
    written something."""
    for _ in range(20):
        os.kill(leader.pid, signal.SIGSTOP)
        until(lambda: is_over(stand_by))
        try:
            epoch = stand_by.lead("stand-by", 100.0, "")
        except DatabaseError:
            before = stand_by.status_count(P)
            os.kill(leader.pid, signal.SIGCONT)
            until(lambda before=before: stand_by.status_count(P) != before)
            continue
        assert epoch is not None
        return epoch
    raise AssertionError("the stand-by could never lead")


@pytest.mark.e2e
def test_a_leader_that_was_frozen_and_wakes_up_writes_nothing(shared_urls: Callable[[str], str]) -> None:
    url = shared_urls("taskdb")
    stand_by = connect_taskdb(url)
    stand_by.open_project(P)
    leader = subprocess.Popen([sys.executable, "-c", LEADER, url], stdout=subprocess.PIPE, text=True)
    try:
        assert leader.stdout is not None
        for _ in range(3):
            assert leader.stdout.readline() == "wrote\n"
        assert take_over(leader, stand_by) > 0
        before = stand_by.status_count(P)
        os.kill(leader.pid, signal.SIGCONT)
        said, _ = leader.communicate(timeout=60)
        assert leader.returncode == 0
        assert said.splitlines()[-1] == "False stand-by"
        assert stand_by.status_count(P) == before
        row = stand_by.leader()
        assert row is not None and row.holder == "stand-by" and row.until > stand_by.time()
    finally:
        leader.kill()
        leader.wait()
        stand_by.close()
