"""`Scheduler.step`: projects that are stopped, changed, deleted and made again; control work: cron ticks, messages, questions to scripts."""

import pytest
from msgspec.structs import replace
from played_crawl import INFO, Crawl, beat, done, fails, links, new, runs

from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.report import Message
from pyspider_lite.models.task import TaskStatus
from pyspider_lite.models.worker import Claim

# --- projects that change ------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("S13")
def test_a_stopped_project_gives_nothing_more_and_takes_reports(crawl: Crawl) -> None:
    crawl.project(rate=2, burst=2)
    crawl.ready("p")
    crawl.submit(*[new(str(number)) for number in range(10)])
    given = crawl.tasks()
    assert len(given) == 2
    crawl.change("p", status="STOP")
    crawl.step(after=5)
    crawl.step(links("found")(given[0]), fails(given[1]))
    crawl.crawl(5)
    assert len(crawl.given) == 3  # with _on_get_info
    assert crawl.task("0").status == TaskStatus.SUCCESS
    assert crawl.task("found").status == TaskStatus.ACTIVE
    crawl.change("p", status="RUNNING", rate=100.0, burst=100.0)
    crawl.crawl(2)
    assert crawl.taskdb.status_count("p")[TaskStatus.SUCCESS] == 10


def test_a_late_report_of_a_project_that_was_stopped_before_we_began_to_lead(crawl: Crawl) -> None:
    task = crawl.one_task()
    crawl.change("p", status="STOP")
    crawl.taskdb.close()
    crawl.taskdb = crawl.wrapped = crawl.taskdb.copy()
    crawl.lead()
    crawl.step()
    crawl.project("q")
    crawl.scheduler.update_projects()
    crawl.step(done(task))
    assert crawl.task("t").status == TaskStatus.SUCCESS
    crawl.step()
    assert [task.project for task in crawl.controls()] == ["q"], "the others go on"


@pytest.mark.behaviour("S12")
def test_another_script_is_asked_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.info["p"] = {"crawl_config": {"timeout": 5, "headers": {"a": "b"}}}
    crawl.change("p", script="v2")
    crawl.submit(new("t", fetch={"headers": {"c": "d"}}))
    assert crawl.tasks() == []
    crawl.step(*[crawl.answer(task) for task in crawl.controls()])
    (task,) = crawl.tasks()
    assert task.fetch == {"timeout": 5, "headers": {"a": "b", "c": "d"}}
    assert task.project_md5sum == crawl.scheduler.projects["p"].md5


@pytest.mark.behaviour("S12", "S65")
def test_a_new_leader_knows_what_the_script_answered(crawl: Crawl) -> None:
    crawl.project()
    crawl.info["p"] = {"crawl_config": {"timeout": 5}, "retry_delay": {"": 7}, "jobs": [{"name": "often", "every": 60}]}
    crawl.ready("p")
    before = crawl.scheduler.projects["p"].info
    crawl.submit(new("t"), new("u"))
    crawl.step(*[done(task) for task in crawl.tasks() if task.taskid == "u"])  # a commit keeps the answer
    crawl.lead()
    crawl.step()
    (task,) = crawl.tasks()
    assert (task.taskid, task.fetch) == ("t", {"timeout": 5})
    assert crawl.scheduler.projects["p"].info == before
    assert crawl.controls() == []
    # who stops a project and starts it again has it asked
    crawl.change("p", status="STOP")
    crawl.step()
    crawl.change("p", status="RUNNING")
    crawl.step()
    assert len(crawl.controls()) == 1


@pytest.mark.parametrize(
    "change", ["pushed", "pushed while it was stopped", "deleted", "replaced", "broken", "large", "unreadable"]
)
def test_a_new_leader_asks_a_script_that_has_not_answered(crawl: Crawl, change: str) -> None:
    crawl.project()
    crawl.step()
    (asked,) = crawl.controls()
    info = {**INFO, "crawl_config": {"headers": {"x": "y" * (9_000 if change == "large" else 9)}}}
    crawl.step(done(asked, ok=change != "broken", info=None if change == "broken" else info))
    if change == "pushed while it was stopped":
        crawl.change("p", status="STOP")
        crawl.step()
    if change == "deleted":
        crawl.taskdb.drop_project("p")
    if change in ("deleted", "replaced"):
        crawl.projectdb.drop("p")
        crawl.project()
    elif change.startswith("pushed"):
        crawl.change("p", script="v2", status="RUNNING")
    elif change == "unreadable":
        with crawl.taskdb.begin(None) as tx:
            tx.put_project_states([replace(tx.project_states(["p"])["p"], info="[1]")])
    crawl.lead()
    crawl.submit(new("t"))
    assert crawl.tasks() == []
    (asked,) = crawl.controls()
    crawl.step(done(asked, info=INFO))
    (task,) = crawl.tasks()
    assert task.fetch == {}


def test_an_answer_of_the_script_before_does_not_count(crawl: Crawl) -> None:
    crawl.project()
    crawl.submit(new("t"))
    (old,) = crawl.controls()
    crawl.change("p", script="v2")
    crawl.step()
    crawl.step(done(old, info={"crawl_config": {"timeout": 1}}))
    assert crawl.tasks() == []
    (asked,) = crawl.controls()
    crawl.step(done(asked, info=INFO))
    (task,) = crawl.tasks()
    assert task.fetch == {}


@pytest.mark.behaviour("X-P9")
def test_deleted_and_made_again_under_the_same_name(crawl: Crawl) -> None:
    """Another generation: what belongs to the old project touches nothing of the new one."""
    task = crawl.one_task()
    crawl.step(done(task))
    crawl.submit(new("u"))
    (late,) = crawl.tasks()
    crawl.projectdb.update("p", status="STOP", group="delete")
    crawl.scheduler.update_projects()
    crawl.step()
    crawl.now = crawl.look().updatetime + 86_401
    crawl.step()
    assert crawl.projectdb.get("p") is None
    assert crawl.taskdb.status_count("p") == {}
    generation = crawl.project()
    crawl.ready("p")
    crawl.step(done(late, follows=[new("ghost", generation=late.generation)]))
    assert crawl.taskdb.status_count("p") == {}
    # what was known of the old one is new here
    crawl.submit(new("t"), new("u"))
    given = crawl.tasks()
    assert {(task.taskid, task.generation) for task in given} == {("t", generation), ("u", generation)}
    crawl.crawl(1)
    crawl.step(*[done(task) for task in given])


def test_a_project_that_was_replaced_while_its_work_was_under_way(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.ready("p")
    crawl.submit(new("t"))
    flying = [*crawl.tasks(), *crawl.controls()]
    crawl.projectdb.drop("p")
    crawl.project()
    crawl.scheduler.update_projects()
    crawl.step()
    crawl.step(*[crawl.answer(task) for task in crawl.controls()])
    crawl.step(*[done(task) for task in flying])
    crawl.submit(new("v"))
    crawl.crawl(3)
    assert crawl.task("v").status == TaskStatus.SUCCESS
    assert "on_finished" in crawl.callbacks()


def test_control_work_of_an_earlier_project_holds_nothing_up(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.projectdb.drop("p")
    crawl.project()
    crawl.lead()
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.crawl(2)
    assert "on_start" not in crawl.callbacks()
    assert "on_finished" in crawl.callbacks()


# --- control work --------------------------------------------------------------------------------------------------------


def test_cron_ticks(crawl: Crawl) -> None:
    crawl.info["p"] = {"cron": [5, 60]}
    crawl.project()
    crawl.now = 6e9 + 0.5
    crawl.ready("p")
    crawl.crawl(21)
    ticks = [task.fetch["save"]["tick"] for task in crawl.given if task.process["callback"] == "_on_cronjob"]
    assert ticks == [6_000_000_005, 6_000_000_010, 6_000_000_015, 6_000_000_020]
    assert crawl.taskdb.project_states()["p"].last_tick == ticks[-1]
    crawl.step(after=3_600)
    assert len([task for task in crawl.controls() if task.process["callback"] == "_on_cronjob"]) <= 2


def test_cron_ticks_that_nobody_takes_are_bounded(crawl: Crawl) -> None:
    crawl.info["p"] = {"cron": [1]}
    crawl.project()
    crawl.ready("p")
    for _ in range(40):
        crawl.step(after=1)
    assert len(crawl.taskdb.controls(0, 1_000)) == 10


@pytest.mark.behaviour("X-P7", "H61")
def test_messages_between_projects(crawl: Crawl) -> None:
    """H61."""
    crawl.project("a")
    crawl.project("b")
    crawl.ready("a", "b")
    crawl.pages = {
        "http://x/t": lambda task: done(
            task, messages=[Message("b", {"n": 1}, "data:,1"), Message("b", 2, "data:,2"), Message("nobody", 3, "u")]
        ),
        "b:_on_message": links("found"),
    }
    crawl.submit(new("t", "a"))
    crawl.crawl(2)
    got = [task for task in crawl.given if task.process.get("callback") == "_on_message"]
    assert [(task.project, task.fetch["save"]) for task in got] == [("b", ["a", {"n": 1}]), ("b", ["a", 2])]
    assert crawl.task("found", "b").status == TaskStatus.SUCCESS
    assert crawl.taskdb.controls(0, 10) == []


@pytest.mark.behaviour("X-S8", "S12")
def test_control_work_that_is_lost_is_given_out_again(crawl: Crawl) -> None:
    crawl.project()
    crawl.start()
    crawl.step(beat("p1", Role.PROCESSOR))
    asked = crawl.controls()
    assert {task.process["callback"] for task in asked} == {"_on_get_info", "on_start"}
    batch = f"scheduler-{crawl.scheduler._dispatcher._epoch}-1"
    crawl.step(Claim(worker="p1", queue=QueueName.CONTROL, batch=batch, runs=runs(asked)))
    for _ in range(8):
        crawl.step(after=1)
    again = crawl.controls()
    assert {task.key for task in again} == {task.key for task in asked}
    crawl.step(*[done(task) for task in (*asked, *again)])
    crawl.crawl(1)
    assert crawl.callbacks().count("on_finished") == 1


def test_large_messages_do_not_stop_the_control_lane(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("t"))
    (task,) = crawl.tasks()
    noise = [
        f"{number:x}" + "".join(f"{(number * 7919 + n) * 2654435761 % 2**32:08x}" for n in range(300_000))
        for number in range(6)
    ]
    crawl.step(done(task, messages=[Message("p", text, f"data:,{n}") for n, text in enumerate(noise)]))
    crawl.crawl(2)
    assert crawl.callbacks().count("_on_message") == len(noise)


def test_messages_from_outside_are_delivered_each_once(crawl: Crawl) -> None:
    """Also while another is under way, and under the next leader."""
    crawl.project()
    crawl.ready("p")
    task = replace(new("m", process={"callback": "_on_message"}), url="data:,on_message")
    stored: list[object] = []
    for number in range(3):
        sent = replace(task, fetch={"save": ["__command__", number]})
        crawl.scheduler.send_message(sent, f"p:{number}", stored.append)
        crawl.step()
    assert len(stored) == 3
    (first, *others) = crawl.controls()
    crawl.step(done(first))
    crawl.lead()
    crawl.ready("p")
    crawl.crawl(4)
    got = [given.fetch["save"][1] for given in crawl.given if given.process.get("callback") == "_on_message"]
    assert len(others) == 2 and got.count(0) == 1 and set(got) == {0, 1, 2}
    assert not any("message" in row.id for row in crawl.taskdb.controls(0, 10))
