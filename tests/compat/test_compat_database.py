"""pyspider's database objects and queue, on ours."""

import time
from collections.abc import Iterator
from pathlib import Path
from queue import Full
from typing import Any

import pytest

from pyspider_lite import codec, message_queue
from pyspider_lite.compat import database, dataurl, utils
from pyspider_lite.compat import message_queue as old_queue
from pyspider_lite.errors import ConfigError, DatabaseError
from pyspider_lite.models.batch import NewTaskBatch
from pyspider_lite.models.task import NewTask


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Any]:
    opened = []

    def open_one(kind: str) -> Any:
        opened.append(database.connect_database(f"sqlite+{kind}:///{tmp_path}/{kind}.db"))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()


@pytest.mark.behaviour("D14", "D15", "D2")
def test_results(connect: Any) -> None:
    results = connect("resultdb")
    assert results.get("p", "1") is None and list(results.select("p")) == [] and results.count("p") == 0
    results.save("p", "1", "http://a/", {"n": 1})
    results.save("p", "2", "http://b/", ["two"])
    results.save("p", "1", "http://a/", {"n": 3})
    other = results.copy()
    assert other.projects == {"p"} and other.count("p") == 2
    assert other.get("p", "1", fields=["result", "url"]) == {"result": {"n": 3}, "url": "http://a/"}
    assert [row["result"] for row in other.select("p", offset=1, limit=1)] in ([["two"]], [{"n": 3}])
    other.drop("p")
    other.close()
    assert results.count("p") == 0


@pytest.mark.behaviour("D13", "S9")
def test_projects(connect: Any) -> None:
    projects = connect("projectdb")
    before = time.time()
    projects.insert("p", {"status": "TODO", "script": "pass", "group": "A-b delete", "rate": 2})
    assert projects.get("p", fields=["status", "rate"]) == {"status": "TODO", "rate": 2}
    assert projects.update("p", status="RUNNING") == 1 and projects.update("none", status="STOP") == 0
    assert [row["status"] for row in projects.get_all()] == ["RUNNING"]
    assert [row["name"] for row in projects.check_update(before - 1, ["name"])] == ["p"]
    assert list(projects.check_update(time.time() + 60)) == []
    assert projects.split_group("A-b delete") == ["a", "b", "delete"] and projects.split_group(None) == []
    assert projects.verify_project_name("a" * 64) and not projects.verify_project_name("a b")
    assert not projects.verify_project_name("a" * 65)
    projects.drop("p")
    assert projects.get("p") is None


@pytest.mark.behaviour("D12", "D16", "S1", "S2")
def test_tasks(connect: Any) -> None:
    tasks = connect("taskdb")
    assert tasks.get_task("p", "1") is None and tasks.status_count("p") == {} and tasks.projects == set()
    tasks.insert("p", "1", {"url": "http://a/", "process": {"callback": "f"}, "schedule": {"priority": 2}})
    found = tasks.get_task("p", "1")
    assert set(found) == {
        *("taskid", "project", "url", "status", "schedule", "fetch", "process", "track", "lastcrawltime", "updatetime")
    }
    assert (found["url"], found["status"], found["process"]) == ("http://a/", tasks.ACTIVE, {"callback": "f"})
    assert [row["taskid"] for row in tasks.load_tasks(tasks.ACTIVE, fields=["taskid"])] == ["1"]
    assert list(tasks.load_tasks(tasks.FAILED, "p")) == [] and tasks.status_count("p") == {1: 1}
    with pytest.raises(DatabaseError, match="scheduler only"):
        tasks.update("p", "1", status=2)
    with pytest.raises(DatabaseError, match="cannot have status 2"):
        tasks.insert("p", "2", {"url": "http://a/", "status": 2})
    assert tasks.status_to_string(3) == "FAILED" and tasks.status_to_int("no such") == 4
    assert tasks.status_to_string(9) == "UNKNOWN"


def test_the_classes_of_the_engines(tmp_path: Path) -> None:
    results = database.sqlite.ResultDB(f"{tmp_path}/result.db")
    results.save("p", "1", "u", 1)
    results.close()
    results = database.sqlalchemy.ResultDB(f"sqlite:///{tmp_path}/result.db")
    results.close()
    (tmp_path / "s.py").write_text("# rate: 2")
    assert database.local.ProjectDB([f"{tmp_path}/*.py"]).get("s")["rate"] == 2
    for url in ("sqlite://x", "sqlite+x:///y"):
        with pytest.raises(ConfigError, match="ends in"):
            database.connect_database(url)


@pytest.mark.behaviour("Q1")
def test_the_queue_of_submissions() -> None:
    queue = old_queue.connect_message_queue("newtask_queue", "memory://compat", 1)
    task = {"taskid": "1", "project": "p", "url": "http://a/", "fetch": {"data": b"\xff"}}
    queue.put([task, task])
    with pytest.raises(Full):
        queue.put_nowait(task)
    ours = message_queue.connect("memory://compat", "newtask_queue")
    batch = codec.decode(ours.get(1, 1.0)[0].body, NewTaskBatch)
    assert [codec.unpack(bytes(raw), NewTask).taskid for raw in batch.tasks] == ["1", "1"]
    assert queue.empty()
    for name, url in (("status_queue", "memory://compat"), ("newtask_queue", None)):
        with pytest.raises(ConfigError):
            old_queue.connect_message_queue(name, url)


@pytest.mark.behaviour("F29", "F2")
def test_data_urls_and_texts() -> None:
    for data in ("a,b é", b"\x00\xff", b""):
        assert dataurl.decode(dataurl.encode(data)) == data
    assert dataurl.encode("a b", "text/plain", base64=False) == "data:text/plain;charset=utf-8,a%20b"
    assert dataurl.decode("data:,a,b") == "a,b"
    for data in (b"\xff\x00", "text", {"a": [b"\xfe"]}):
        assert utils.decode_unicode_obj(utils.unicode_string(data) if isinstance(data, bytes) else data) == data


@pytest.mark.behaviour("P41")
def test_a_result_worker_that_saves_by_itself(connect: Any) -> None:
    from pyspider_lite.compat.result import ResultWorker

    class Mine(ResultWorker):
        def on_result(self, task: dict[str, Any], result: Any) -> Any:
            return self.resultdb.save(
                project=task["project"], taskid=task["taskid"], url=task["url"], result={**result, "mine": True}
            )

    results = connect("resultdb")
    Mine(results).on_result({"project": "p", "taskid": "1", "url": "u"}, {"n": 1})
    assert results.get("p", "1")["result"] == {"n": 1, "mine": True}


@pytest.mark.behaviour("D21")
@pytest.mark.parametrize("value", [{}, [], "", 0, False, None, "text", 1.5, {"a": [1, None]}])
def test_falsy_results_are_what_they_were(connect: Any, value: Any) -> None:
    results = connect("resultdb")
    results.save("p", "1", "http://a/", value)
    assert results.get("p", "1")["result"] == value
    assert type(results.get("p", "1")["result"]) is type(value)
    assert [row["result"] for row in results.select("p")] == [value]


@pytest.mark.behaviour("D15", "D22")
def test_times_are_unix_seconds(connect: Any) -> None:
    tasks, results, projects = connect("taskdb"), connect("resultdb"), connect("projectdb")
    before = time.time()
    tasks.insert("p", "1", {"url": "http://a/"})
    results.save("p", "1", "http://a/", 1)
    projects.insert("p", {"script": ""})
    inserted = projects.get("p")["updatetime"]
    while time.time() <= inserted:  # the clock may be a coarse one
        time.sleep(0.001)
    projects.update("p", comments="later")
    after = time.time()
    task = tasks.get_task("p", "1")
    assert task["lastcrawltime"] is None, "it never ran"
    for found in (task["updatetime"], results.get("p", "1")["updatetime"], projects.get("p")["updatetime"]):
        assert isinstance(found, float) and before <= found <= after
    assert inserted < projects.get("p")["updatetime"]


@pytest.mark.behaviour("X-D9")
def test_a_table_that_another_process_made_is_found(connect: Any) -> None:
    results, other = connect("resultdb"), connect("resultdb")
    assert results.count("p") == 0 and results.projects == set()
    other.save("p", "1", "http://a/", 1)
    assert results.count("p") == 1 and results.projects == {"p"}
    results.save("p", "2", "http://b/", 2)
    assert other.count("p") == 2
