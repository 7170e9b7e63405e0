"""What is given out: crawl_config joined, batches cut, caps."""

import pytest
from played_crawl import Crawl, beat, claim, done, new, runs

from pyspider_lite.models.names import Role
from pyspider_lite.models.project import ProjectHead, ProjectState
from pyspider_lite.models.task import Task, TaskStatus
from pyspider_lite.scheduler.project_state import Info, ProjectRun
from pyspider_lite.scheduler.sending import to_dispatch


@pytest.mark.behaviour("S6")
def test_a_dispatch_holds_everything_that_a_worker_needs() -> None:
    """S6."""
    head = ProjectHead(name="p", group="g", status="DEBUG", rate=1, burst=3, updatetime=5.0, generation="gen")
    project = ProjectRun(head, ProjectState(project="p"), window_limit=10, fail_pause_num=10, now=0.0)
    project.info = Info(crawl_config={"timeout": 7, "process_time_limit": 3})
    project.md5 = "abc"
    task = Task(
        taskid="t",
        project="p",
        url="u",
        schedule={"retried": 1},
        fetch={"save": 1},
        process={"callback": "c"},
        track={"save": {"k": 1}},
        lastcrawltime=3.0,
        run=4,
        unconditional=True,
    )
    given = to_dispatch(task, project, 7)
    assert given.key == ("p", "t", 4)
    assert (given.fetch, given.process) == ({"save": 1, "timeout": 7}, {"callback": "c", "process_time_limit": 3})
    assert (given.schedule, given.track, given.lastcrawltime) == (task.schedule, task.track, 3.0)
    assert (given.group, given.project_md5sum, given.project_updatetime) == ("g", "abc", 5.0)
    assert (given.generation, given.debug, given.unconditional, given.epoch) == ("gen", True, True, 7)


@pytest.mark.parametrize(("pool", "size"), [(1, 1), (7, 1), (40, 10), (400, 100), (4_000, 100)])
def test_a_batch_is_a_quarter_of_the_smallest_pool(crawl: Crawl, pool: int, size: int) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.step(beat("w1", pool=pool), beat("w2", pool=pool * 2), beat("p1", Role.PROCESSOR, pool=1))
    crawl.submit(*[new(str(number)) for number in range(150)])
    batches = crawl.batches()
    assert max(len(batch.tasks) for batch in batches) == size
    assert sorted(int(task.taskid) for batch in batches for task in batch.tasks) == list(range(150))
    assert len({batch.batch for batch in batches}) == len(batches)


def noise(size: int) -> str:
    """Text that does not compress well."""
    return "".join(f"{number * 2654435761 % 2**32:08x}" for number in range(size // 8))


def test_what_is_too_large_together_goes_apart(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    text = noise(8_000_000)
    crawl.submit(*[new(str(number), fetch={"save": text}) for number in range(4)])
    given = crawl.tasks()
    assert sorted(task.taskid for task in given) == ["0", "1", "2", "3"]
    crawl.step(*[done(task) for task in given])


def test_what_nobody_could_take_fails_with_the_reason(crawl: Crawl) -> None:
    crawl.project()
    crawl.info["p"] = {"crawl_config": {"headers": {"large": noise(60_000_000)}}}
    crawl.ready("p")
    crawl.submit(new("t"))
    crawl.step()
    assert crawl.tasks() == []
    assert crawl.task("t").status == TaskStatus.FAILED
    assert "cannot be given out" in crawl.task("t").track["process"]["exception"]


def test_a_long_timeout_is_waited_for(crawl: Crawl) -> None:
    crawl.project()
    crawl.ready("p")
    crawl.submit(new("short", fetch={"timeout": 5}), new("long", fetch={"timeout": 500}))
    (batch,) = crawl.batches()
    held = {batch.batch: runs(batch.tasks)}
    crawl.step(claim(batch), beat(holds=held))
    for _ in range(60):
        crawl.step(beat(holds=held), after=1)
    assert [task.taskid for task in crawl.tasks()] == ["short"]
