"""What the scheduler says to `doctor`, and that it looks again at what was changed behind its back."""

from msgspec.structs import replace
from played_crawl import INFO, Crawl, done, new

from pyspider_lite.database.base import NewRow
from pyspider_lite.scheduler import checkup


def written_behind(crawl: Crawl, *taskids: str) -> None:
    """Rows that another program wrote, and counted."""
    rows = [NewRow(task=new(taskid), due=crawl.now - 10, priority=0, updatetime=crawl.now) for taskid in taskids]
    with crawl.taskdb.begin(None) as tx:
        tx.insert("p", rows)
        state = tx.project_states(["p"])["p"]
        tx.put_project_states([replace(state, active=state.active + len(rows))])


def strangers(crawl: Crawl, *taskids: str) -> list[str]:
    return checkup.strangers(crawl.scheduler, "p", taskids)


def test_what_waits_and_what_is_in_flight_is_known(crawl: Crawl) -> None:
    crawl.project(rate=0.001, burst=1)
    crawl.ready("p")
    crawl.submit(new("a"), new("b"), new("c"))
    crawl.step()
    (given,) = crawl.tasks()
    facts = checkup.projects(crawl.scheduler)["p"]
    assert facts == {"active": True, "asked": True, "paused": False, "known": 3}
    written_behind(crawl, "d")
    assert strangers(crawl, "a", "b", "c", "d") == ["d"]
    crawl.step(done(given))
    crawl.step()
    assert strangers(crawl, "b", "c", "d") == ["d"]
    crawl.change("p", status="STOP")
    crawl.step(after=2)
    assert strangers(crawl, "d") == []
    assert checkup.strangers(crawl.scheduler, "nobody", ["d"]) == []


def test_it_looks_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("a"))
    crawl.crawl(2)
    written_behind(crawl, "b")
    crawl.crawl(5)
    assert [task.taskid for task in crawl.given if not task.control] == ["a"]
    assert strangers(crawl, "b") == ["b"]
    assert crawl.scheduler.look_again("p")
    assert strangers(crawl, "b") == []
    assert checkup.projects(crawl.scheduler)["p"]["known"] is None
    crawl.crawl(2)
    assert [task.taskid for task in crawl.given if not task.control] == ["a", "b"]
    assert not crawl.scheduler.look_again("nobody")


def test_counts_that_were_put_right_end_the_crawl(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("a"))
    with crawl.taskdb.begin(None) as tx:
        tx.put_project_states([replace(tx.project_states(["p"])["p"], active=4)])
    crawl.crawl(3)
    assert "on_finished" not in crawl.callbacks()
    with crawl.taskdb.begin(None) as tx:
        tx.put_project_states([replace(tx.project_states(["p"])["p"], active=0)])
    crawl.scheduler.look_again("p")
    crawl.crawl(1)
    assert crawl.callbacks() == ["_on_get_info", "on_finished"]


def test_a_project_whose_question_was_lost_is_asked_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.step()
    (asked,) = crawl.controls()
    with crawl.taskdb.begin(None) as tx:
        tx.delete_controls([asked.control])
    # while somebody may answer nobody is asked besides
    crawl.scheduler.look_again("p")
    crawl.step()
    assert crawl.controls() == []
    crawl.step(done(asked, info=INFO))
    crawl.step(after=5)
    assert crawl.controls() == []
    assert not checkup.projects(crawl.scheduler)["p"]["asked"]
    crawl.scheduler.look_again("p")
    crawl.step()
    (again,) = crawl.controls()
    assert again.control == asked.control
    crawl.step(done(again, info=INFO))
    assert checkup.projects(crawl.scheduler)["p"]["asked"]
    assert crawl.taskdb.controls(0, 10) == []
