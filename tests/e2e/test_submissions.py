"""When a task is run again (behaviour S15 to S22), by real daemons that are all stopped and started between the first and the second
submission of each task. The whole table is in `scheduler/test_truth_table.py`."""

import contextlib
import time
from collections.abc import Callable
from typing import Any
from xmlrpc.client import ServerProxy

import pytest

from pyspider_lite import assembly, configuration
from pyspider_lite.models.task import Task, TaskStatus

pytestmark = pytest.mark.e2e

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    retry_delay = {"": 3600}

    def on_start(self):
        pass

    def page(self, response):
        return {"text": response.text}

    def broken(self, response):
        raise ValueError("no good")
"""
LATER = time.time() + 7200

#: how each state is brought about: callback, schedule
FIRST: dict[str, tuple[str, dict[str, Any]]] = {
    "success": ("page", {}),
    "failed": ("broken", {"retries": 0}),
    "retry": ("broken", {"retries": 3}),
    "active": ("page", {"exetime": LATER}),
    "bad": ("page", {"exetime": LATER}),
}
STATUS = {
    "success": TaskStatus.SUCCESS, "failed": TaskStatus.FAILED, "retry": TaskStatus.ACTIVE,
    "active": TaskStatus.ACTIVE, "bad": TaskStatus.BAD,
}  # fmt: skip
SECOND: dict[str, dict[str, Any]] = {
    "plain": {},
    "age0": {"age": 0},
    "fresh": {"age": 3600},
    "same": {"itag": "v1"},
    "other": {"itag": "v2"},
    "force": {"force_update": True},
    "cancel": {"cancel": True},
    "stop": {"cancel": True, "force_update": True},
}
#: what the second submission does, in the order of SECOND: a reason, or "again" or "cancel"
WANTED = {
    "success": "seen again fresh same-itag again again seen cancel",
    "failed": "seen again fresh same-itag again again seen cancel",
    "retry": "active again active active again again active cancel",
    "active": "active active active active again again active cancel",
    # it was cancelled before its first run, so it is older than any age
    "bad": "seen again again same-itag again again seen cancel",
}


def task(taskid: str, mark: int, callback: str, schedule: dict[str, Any]) -> dict[str, Any]:
    return {
        "taskid": taskid, "project": "shop", "url": f"data:,{taskid}",
        "schedule": {"itag": "v1", "mark": mark, **schedule} if mark == 1 else {"mark": mark, **schedule},
        "process": {"callback": callback},
    }  # fmt: skip


class Shop:
    """The project on a running suite."""

    def __init__(self, suite: Any) -> None:
        self.suite = suite
        self.settings = configuration.load(str(suite.config), {}, {}).settings
        self.epoch = 0

    def start(self) -> None:
        self.suite.start()
        self.suite.wait(self._leads)

    def _leads(self) -> bool:
        with contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb:
            leader = taskdb.leader()
        if leader is None or leader.epoch <= self.epoch or not leader.rpc:
            return False
        self.epoch, self.rpc = leader.epoch, ServerProxy(leader.rpc, allow_none=True, use_builtin_types=True)
        return True

    def tasks(self) -> dict[str, Task]:
        with contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb:
            return {row.taskid: row for row in taskdb.select("shop", limit=1000)}

    def drops(self) -> dict[str, float]:
        counted: dict[str, float] = self.rpc.explain("shop", "none").get("dropped", {})
        return counted


@pytest.fixture
def shop(make_suite: Callable[..., Any], stack: dict[str, Any]) -> Shop:
    return Shop(make_suite(scheduler={"fail_pause_num": 0}, **stack))


@pytest.mark.behaviour("S15", "S18", "S20", "S22")
def test_the_second_submission_of_a_task_after_a_restart(shop: Shop) -> None:
    shop.start()
    shop.suite.push("shop", SCRIPT)
    shop.suite.wait(lambda: shop.rpc.update_project() is None and shop.rpc.newtask(task("ready", 1, "page", {})))
    names = [(state, second) for state in FIRST for second in SECOND]
    for state, second in names:
        callback, schedule = FIRST[state]
        assert shop.rpc.newtask(task(f"{state}-{second}", 1, callback, schedule))
        if state == "bad":
            assert shop.rpc.newtask(task(f"{state}-{second}", 1, callback, {"cancel": True, "force_update": True}))

    def as_wanted() -> bool:
        tasks = shop.tasks()
        return all(
            tasks[f"{state}-{second}"].status == STATUS[state]
            and tasks[f"{state}-{second}"].schedule.get("retried", 0) == (state == "retry")
            for state, second in names
        )

    shop.suite.wait(as_wanted)
    shop.suite.stop()
    shop.start()
    before = shop.drops()
    wanted: dict[str, int] = {}
    for state, second in names:
        outcome = WANTED[state].split()[list(SECOND).index(second)]
        assert shop.rpc.newtask(task(f"{state}-{second}", 2, "page", SECOND[second]))
        found = shop.tasks()[f"{state}-{second}"]
        assert (found.schedule["mark"] == 2) == (outcome == "again"), (state, second, found)
        if outcome == "cancel":
            assert found.status == TaskStatus.BAD, (state, second)
        elif outcome != "again":
            assert found.status == STATUS[state], (state, second)
            wanted[outcome] = wanted.get(outcome, 0) + 1
            assert shop.rpc.explain("shop", found.taskid)["drop"]["reason"] == outcome, (state, second)
    after = shop.drops()
    counted = {reason: int(count - before.get(reason, 0)) for reason, count in after.items()}
    assert {reason: count for reason, count in counted.items() if count} == wanted
    # whatever was restarted ends, with its new callback
    shop.suite.wait(
        lambda: all(
            found.status == TaskStatus.SUCCESS for found in shop.tasks().values() if found.schedule.get("mark") == 2
        )
    )
