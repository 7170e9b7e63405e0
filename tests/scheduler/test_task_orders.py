"""Tasks that people have run again, cancelled or given another priority, while the crawl goes on."""

import json
import random
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from xmlrpc.client import Fault

import pytest
from played_crawl import Away, Crawl, done, fails, new

from pyspider_lite.errors import DataError
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.remote import Remote
from pyspider_lite.scheduler.task_orders import MAX_TASKS, Outcome, TaskAction, TaskOrder


def order(crawl: Crawl, action: str, *taskids: str, priority: int = 0, stale: int = 0) -> dict[str, int]:
    """Order it for tasks as they are now; what came of it."""
    tasks = {task.taskid: task.run - stale for task in crawl.taskdb.get("p", taskids)}
    tasks |= {taskid: 0 for taskid in taskids if taskid not in tasks}
    wanted = TaskOrder(project="p", action=TaskAction(action), tasks=tasks, priority=priority)
    answered: list[Any] = []
    crawl.scheduler.order(wanted, answered.append)
    crawl.step(after=0)
    assert len(answered) == 1
    return {str(word): count for word, count in wanted.outcomes.items()}


def test_a_failed_task_runs_again_with_all_its_retries(ready: Crawl) -> None:
    ready.pages["http://x/a"] = fails
    ready.submit(new("a", schedule={"retries": 0, "priority": 3}, fetch={"save": 1}))
    ready.crawl(1)
    assert ready.task("a").status == TaskStatus.FAILED
    run = ready.task("a").run
    del ready.pages["http://x/a"]
    assert order(ready, "retry", "a") == {"done": 1}
    (given,) = ready.tasks()
    assert (given.taskid, given.run, given.fetch, given.unconditional) == ("a", run + 1, {"save": 1}, True)
    assert given.track["process"]["ok"] is False
    ready.step(done(given))
    assert ready.task("a").status == TaskStatus.SUCCESS
    assert ready.callbacks().count("on_finished") == 1
    ready.crawl(1)
    # what is run again is a new crawl, which has an end of its own
    assert ready.callbacks().count("on_finished") == 2


def test_a_task_that_waits_for_a_retry_runs_now(ready: Crawl) -> None:
    ready.pages["http://x/a"] = fails
    ready.submit(new("a"))
    ready.crawl(1)
    assert ready.task("a").schedule["retried"] == 1
    assert order(ready, "retry", "a") == {"done": 1}
    assert [task.taskid for task in ready.tasks()] == ["a"]
    assert ready.task("a").schedule == {}


def test_what_is_under_way_or_waits_its_turn_is_not_run_twice(ready: Crawl) -> None:
    ready.change("p", rate=0)
    ready.submit(new("waits"), new("later", schedule={"exetime": ready.now + 1e6}))
    assert order(ready, "retry", "waits", "later") == {"waits already": 2}
    ready.change("p", rate=1e6)
    ready.submit(new("runs"))
    given = {task.taskid: task for task in ready.tasks()}
    assert set(given) == {"waits", "runs"}
    assert order(ready, "retry", "runs") == {"under way": 1}
    ready.step(*map(done, given.values()))
    assert order(ready, "retry", "runs", "none") == {"done": 1, "changed meanwhile": 1}


def test_who_saw_another_run_changes_nothing(ready: Crawl) -> None:
    ready.submit(new("a"))
    ready.crawl(1)
    for action in TaskAction:
        assert order(ready, action, "a", stale=1) == {"changed meanwhile": 1}
    assert ready.task("a").status == TaskStatus.SUCCESS


def test_tasks_are_cancelled_now_or_after_their_run(ready: Crawl) -> None:
    ready.submit(new("runs"), new("later", schedule={"exetime": ready.now + 1e6}))
    (given,) = ready.tasks()
    assert order(ready, "cancel", "runs", "later") == {"after its run": 1, "done": 1}
    assert (ready.task("later").status, ready.task("runs").status) == (TaskStatus.BAD, TaskStatus.ACTIVE)
    ready.step(done(given, follows=[new("link")]))
    assert ready.task("runs").status == TaskStatus.BAD
    # its run was whole
    assert [task.taskid for task in ready.tasks()] == ["link"]
    assert order(ready, "cancel", "runs", "later") == {"over": 2}
    assert order(ready, "retry", "runs") == {"done": 1}
    assert [task.taskid for task in ready.tasks()] == ["runs"]


def test_a_cancelled_task_that_is_taken_back_keeps_its_exetime(ready: Crawl) -> None:
    at = ready.now + 1e6
    ready.pages["http://x/retried"] = fails
    ready.submit(new("later", schedule={"exetime": at}), new("again"), new("retried"))
    ready.crawl(1)
    # one that ran before and was submitted anew, and one that waits for a retry
    ready.submit(new("again", schedule={"exetime": at, "force_update": True}))
    assert order(ready, "retry", "later", "again") == {"waits already": 2}
    assert order(ready, "cancel", "later", "again", "retried") == {"done": 3}
    assert order(ready, "retry", "later", "again", "retried") == {"at its exetime": 2, "done": 1}
    assert [task.taskid for task in ready.tasks()] == ["retried"]
    for taskid in ("later", "again"):
        after = ready.task(taskid)
        assert (after.status, after.due, after.schedule["exetime"]) == (TaskStatus.ACTIVE, at, at)
    ready.step(after=1e6)
    assert sorted(task.taskid for task in ready.tasks()) == ["again", "later"]


def test_a_crawl_whose_last_tasks_are_cancelled_is_finished(ready: Crawl) -> None:
    ready.submit(new("later", schedule={"exetime": ready.now + 1e6}))
    assert order(ready, "cancel", "later") == {"done": 1}
    ready.crawl(1)
    assert ready.callbacks().count("on_finished") == 1


def test_a_priority_moves_a_task_that_waits(ready: Crawl) -> None:
    ready.submit(new("runs"))
    (runs,) = ready.tasks()
    ready.change("p", rate=0)
    ready.submit(new("a"), new("b"), new("c"), new("over"))
    assert order(ready, "priority", "b", "runs", priority=7) == {"done": 2}
    ready.change("p", rate=1e6)
    ready.step()
    assert [task.taskid for task in ready.tasks()] == ["b", "a", "c", "over"]
    ready.step(fails(runs))
    after = ready.task("runs")
    assert (after.priority, after.schedule["priority"]) == (7, 7)
    ready.step(*[done(task) for task in ready.given if task.taskid == "over"])
    assert order(ready, "priority", "over", priority=1) == {"over": 1}


def test_an_order_keeps_a_restart_that_waits(ready: Crawl) -> None:
    """A new priority for a task that is under way leaves alone what was asked for meanwhile."""
    ready.submit(new("a"))
    (given,) = ready.tasks()
    ready.submit(new("a", schedule={"force_update": True}))
    assert order(ready, "priority", "a", priority=2) == {"done": 1}
    ready.step(done(given))
    assert [task.taskid for task in ready.tasks()] == ["a"]


def test_a_database_that_is_away_delays_an_order_and_counts_once(tmp_path: Path) -> None:
    crawl = Crawl(tmp_path, wrap=Away)
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("a"))
    crawl.crawl(1)
    wanted = TaskOrder(project="p", action=TaskAction.RETRY, tasks={"a": crawl.task("a").run})
    answered: list[Any] = []
    crawl.wrapped.away = True
    crawl.scheduler.order(wanted, answered.append)
    crawl.step()
    assert (answered, wanted.outcomes, crawl.scheduler.backlog) == ([], {}, 1)
    crawl.wrapped.away = False
    crawl.step(after=5)
    assert (len(answered), wanted.outcomes) == (1, {Outcome.DONE: 1})
    crawl.check()
    crawl.close()


def test_a_task_that_cannot_be_stored_stops_no_other(tmp_path: Path) -> None:
    class Picky:
        def __init__(self, db: Any) -> None:
            self.db = db

        def __getattr__(self, name: str) -> Any:
            return getattr(self.db, name)

        def begin(self, epoch: int | None) -> Any:
            opened = self.db.begin(epoch)

            class Begun:
                def __enter__(self) -> Any:
                    tx = opened.__enter__()
                    end = tx.end

                    def picky(project: str, rows: Any) -> None:
                        if any(row.taskid == "bad" and row.status == TaskStatus.ACTIVE for row in rows):
                            raise DataError("bad cannot be stored")
                        end(project, rows)

                    tx.end = picky
                    return tx

                def __exit__(self, *error: Any) -> Any:
                    return opened.__exit__(*error)

            return Begun()

    crawl = Crawl(tmp_path, wrap=Picky)
    crawl.project()
    crawl.ready("p")
    crawl.submit(*map(new, ("a", "bad", "c", "d", "e")))
    crawl.crawl(1)
    assert order(crawl, "retry", "a", "bad", "c", "d", "e") == {"done": 4, "invalid": 1}
    assert sorted(task.taskid for task in crawl.tasks()) == ["a", "c", "d", "e"]
    crawl.check()
    crawl.close()


@pytest.mark.parametrize("seed", range(5))
def test_counts_and_leases_are_right_whatever_is_ordered(ready: Crawl, seed: int) -> None:
    """Checked by the fixture at the end, and here on the way."""
    random_ = random.Random(seed)
    ids = [f"t{number}" for number in range(12)]
    flying: list[Dispatch] = []
    for _ in range(60):
        choice = random_.random()
        some = random_.sample(ids, random_.randint(1, 5))
        if choice < 0.3:
            schedules = [{}, {"force_update": True}, {"age": 5, "auto_recrawl": True, "force_update": True}]
            ready.submit(*[new(taskid, schedule={"retries": 1, **random_.choice(schedules)}) for taskid in some])
        elif choice < 0.7:
            order(ready, random_.choice(list(TaskAction)), *some, priority=random_.randint(0, 3))
        flying += ready.tasks()
        random_.shuffle(flying)
        ended, flying = flying[:3], flying[3:]
        ready.step(*[random_.choice([done, fails])(task) for task in ended], after=random_.choice([0.1, 40]))
        flying += ready.tasks()
        runs = {(task.project, task.taskid) for task in flying}
        assert len(runs) == len(flying)
        ready.check()


# --- by XML-RPC ---------------------------------------------------------------------------------------------------------


def test_an_order_by_rpc_is_answered_after_its_commit(ready: Crawl) -> None:
    ready.submit(new("a\x00é"))
    ready.crawl(1)
    (task,) = ready.taskdb.select("p", status=TaskStatus.SUCCESS, limit=1)
    inbox = Inbox()

    class Process:
        def __init__(self) -> None:
            self.inbox: Inbox | None = inbox

        def stop(self) -> None: ...

    remote = Remote(Process(), lambda: ready.taskdb)

    def asked(*arguments: Any) -> Any:
        with ThreadPoolExecutor(1) as pool:
            answer = pool.submit(remote.order_tasks, *arguments)
            while not answer.done():
                heard = inbox.collect(0.05)
                ready.step(after=0.01, commands=heard.commands)
            return answer.result()

    assert asked("p", "retry", json.dumps({task.taskid: task.run})) == {"done": 1}
    for wrong, reason in (
        (("p", "run", "{}"), "Invalid enum value 'run'"),
        (("p", "retry", "[]"), "Expected `object`"),
        (("p", "retry", {}), "order_tasks: "),
        (("p", "priority", "{}", 2**40), "priorities up to 2147483647"),
        (("p", "retry", json.dumps(dict.fromkeys(map(str, range(MAX_TASKS + 1)), 0))), "at most 1000 tasks"),
    ):
        with pytest.raises(Fault, match=reason):
            remote.order_tasks(*wrong)
    with pytest.raises(Fault, match="there is no project nobody"):
        asked("nobody", "retry", "{}")
