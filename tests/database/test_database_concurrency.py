"""Several writers and readers on one database, on each product: all make progress, nothing is lost, nobody waits for a reader."""

import random
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor, wait

import pytest
from stored_tasks import P, new

from pyspider_lite.database import connect_resultdb, connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.database.resultdb import SqlResultDB
from pyspider_lite.errors import DatabaseError, LostLeadership
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import TaskEnd, TaskStatus

Urls = Callable[[str], str]


def together(*works: Callable[[], None]) -> None:
    """Run them in threads; the first error of any is raised."""
    failed: list[BaseException] = []

    def run(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failed.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if failed:
        raise failed[0]


def repeated(work: Callable[[], None]) -> None:
    """As the callers do: a DatabaseError is answered by doing the whole batch again."""
    for _ in range(50):
        try:
            work()
            return
        except DatabaseError:
            pass
    raise AssertionError("no progress")


def test_writers_of_overlapping_unsorted_results(shared_urls: Urls) -> None:
    ids = [f"{number:08x}" for number in random.Random(1).sample(range(2**32), 300)]

    def writer(seed: int) -> Callable[[], None]:
        database, order = connect_resultdb(shared_urls("resultdb")), random.Random(seed)

        def work() -> None:
            for run in range(8):
                batch = [
                    TaskResult(project=P, taskid=taskid, url="u", run=run, items=[Item("", str(run))], replace=True)
                    for taskid in order.sample(ids, 200)
                ]
                repeated(lambda batch=batch: database.store(batch))  # type: ignore[misc]
            last = [
                TaskResult(project=P, taskid=taskid, url="u", run=9, items=[Item("", "9")]) for taskid in ids[seed::3]
            ]
            repeated(lambda: database.store(last))
            database.close()

        return work

    together(*map(writer, range(3)))
    database = connect_resultdb(shared_urls("resultdb"))
    assert {row.taskid: (row.run, row.result) for row in database.select(P)} == dict.fromkeys(ids, (9, "9"))
    assert database.count(P) == len(ids)
    database.close()


def test_a_late_store_of_results_waits_for_no_store_that_comes_after_it(shared_urls: Urls) -> None:
    """Else it would never come while others store all the time, each beginning before the last one ends."""
    databases = [connect_resultdb(shared_urls("resultdb")) for _ in range(3)]
    first, late, after = databases
    assert isinstance(first, SqlResultDB)
    for number, database in enumerate(databases):
        database.store([_one_result(f"t{number}")])
    with ThreadPoolExecutor(2) as pool:
        with first._database.write() as conn:
            first._take_turn(conn, alone=False)
            waiting = [pool.submit(late.store, [_one_result("late")], late=True)]
            assert not wait(waiting, timeout=0.4).done
            waiting.append(pool.submit(after.store, [_one_result("after")]))
            assert not wait(waiting, timeout=0.4).done
        for each in waiting:
            each.result(20)
    assert first.count(P) == 5
    for database in databases:
        database.close()


def _one_result(taskid: str) -> TaskResult:
    items = [Item("", "1")]
    return TaskResult(project=P, taskid=taskid, url="http://example.com/", run=1, epoch=1, generation="", items=items)


def test_writers_of_overlapping_unsorted_tasks(shared_urls: Urls) -> None:
    ids = [f"{number:08x}" for number in random.Random(2).sample(range(2**32), 300)]

    def writer(seed: int) -> Callable[[], None]:
        database, order = connect_taskdb(shared_urls("taskdb")), random.Random(seed)

        def commit() -> None:
            with database.begin(None) as tx:
                some = order.sample(ids, 200)
                tx.insert(P, [new(taskid) for taskid in some])
                tx.end(P, [
                    TaskEnd(taskid=taskid, status=TaskStatus.FAILED, schedule={}, due=None, priority=0, run=1,
                            updatetime=1.0, lastcrawltime=1.0, track=None) for taskid in reversed(some)
                ])  # fmt: skip

        def work() -> None:
            # all of them make the table
            repeated(lambda: database.open_project(P))
            for _ in range(8):
                repeated(commit)
            with database.begin(None) as tx:
                tx.insert(P, [new(taskid) for taskid in ids])
            database.close()

        return work

    together(*map(writer, range(3)))
    database = connect_taskdb(shared_urls("taskdb"))
    assert sum(database.status_count(P).values()) == len(ids)
    database.close()


def test_schedulers_that_fight_for_the_lead(shared_urls: Urls) -> None:
    """Each epoch is one holder's, and only the holder of the newest writes."""
    wrote: list[tuple[int, str]] = []
    lost = threading.Event()
    round_begins = threading.Barrier(2, timeout=30)

    def scheduler(name: str) -> Callable[[], None]:
        database = connect_taskdb(shared_urls("taskdb"))

        def work() -> None:
            database.open_project(P)
            epoch: int | None = None
            for number in range(25):
                round_begins.wait()
                try:
                    if epoch is None or number % 3 == 0:
                        # terms that are over at once: both may always try
                        epoch = database.lead(name, -1.0, "")
                    if epoch is None:
                        continue
                    with database.begin(epoch) as tx:
                        tx.insert(P, [new(f"{epoch}-{name}-{number}")])
                        wrote.append((epoch, name))
                except LostLeadership:
                    lost.set()
                    epoch = None
            database.close()

        return work

    together(scheduler("one"), scheduler("two"))
    assert lost.is_set()
    # in the order of the commits, epochs never go back, and none has two holders
    assert [epoch for epoch, _ in wrote] == sorted(epoch for epoch, _ in wrote)
    assert len({epoch for epoch, _ in wrote}) == len(set(wrote))
    database = connect_taskdb(shared_urls("taskdb"))
    assert sum(database.status_count(P).values()) == len(wrote)
    database.close()


def test_readers_do_not_wait_for_a_writer(shared_urls: Urls) -> None:
    writer, reader = connect_taskdb(shared_urls("taskdb")), connect_taskdb(shared_urls("taskdb"))
    writer.open_project(P)
    reader.open_project(P)
    epoch = writer.lead("one", 100.0, "")
    with writer.begin(epoch) as tx:
        tx.insert(P, [new("before")])
    with writer.begin(epoch) as tx:
        tx.insert(P, [new(f"t{number}") for number in range(100)])
        began = time.monotonic()
        assert [task.taskid for task in reader.select(P)] == ["before"]
        assert [key.taskid for key in reader.refill(P, 9.0, 10).keys] == ["before"]
        assert reader.leader().epoch == epoch  # type: ignore[union-attr]
        assert (reader.controls(0, 10), reader.project_states(), reader.time() > 0) == ([], {}, True)
        assert time.monotonic() - began < 5.0
    assert reader.status_count(P) == {1: 101}
    writer.close()
    reader.close()


def test_tables_are_not_made_within_a_transaction(shared_urls: Urls) -> None:
    """MySQL would commit it."""
    database: TaskDB = connect_taskdb(shared_urls("taskdb"))
    database.open_project(P)
    with pytest.raises(DatabaseError, match="a transaction is open already"), database.begin(None) as tx:
        tx.insert(P, [new("a")])
        database.open_project("other")
    assert database.select(P) == []
    assert database.projects() == {P}
    database.close()
