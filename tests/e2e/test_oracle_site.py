"""The scripts of data/oracle/scripts on their site: the same tasks, statuses and results as pyspider left behind, or the reason why not.

Addresses in the data are replaced by the site's, and with them the ids that are made from URLs.
"""

import base64
import contextlib
import hashlib
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import assembly, bootstrap, configuration
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import TaskStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(180)]

DATA = Path(__file__).parent.parent / "data/oracle/scripts"
EXPECTED: dict[str, Any] = json.loads((DATA / "expected.json").read_text())["projects"]
EXPECTED |= json.loads((DATA / "expected_more.json").read_text())["projects"]
#: the address in the data
THERE = "127.0.0.1:18080"

#: (project, path of the URL, part) -> what it is here, and why
DIFFERS: dict[tuple[str, str, str], tuple[Any, str]] = {
    ("s11_incremental", "/status/500", "schedule"): (
        {"age": -1, "itag": "v1", "retried": 3},
        "an age of -1 does not switch retries off (X-S4)",
    ),
}
#: (project, path of the URL): each yielded item is stored, pyspider kept the last one (H23)
SEVERAL_ITEMS = {("s09_on_result", "/quotes/page/1/")}


class _Site(BaseHTTPRequestHandler):
    """Answers from site.json as its ``about`` says."""

    protocol_version = "HTTP/1.1"
    server: Any

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0)).decode()
        entry = next((each for each in self.server.entries if self._fits(each, body)), None)
        if entry is None:
            self._answer(404, {"Content-Type": "text/plain"}, b"no such page")
            return
        status, headers = entry["status"], entry["headers"]
        if "sequence" in entry:
            with self.server.lock:
                count = self.server.counts[entry["path"]]
                self.server.counts[entry["path"]] += 1
            status = entry["sequence"][min(count, len(entry["sequence"]) - 1)]
        tag, since = self.headers.get("If-None-Match"), self.headers.get("If-Modified-Since")
        if (tag and tag == headers.get("ETag")) or (not tag and since and since == headers.get("Last-Modified")):
            self._answer(304, headers, b"")
            return
        content = base64.b64decode(entry["body"]).replace(THERE.encode(), self.server.here.encode())
        self._answer(status, headers, self._echo(body) if entry.get("echo") else content)

    do_POST = do_PUT = do_GET

    def _fits(self, entry: dict[str, Any], body: str) -> bool:
        return (
            (entry["method"], entry["path"]) == (self.command, self.path)
            and entry.get("request_body", body) == body
            and entry.get("require_cookie", "") in (self.headers.get("Cookie") or "")
        )

    def _echo(self, body: str) -> bytes:
        shown = {name: self.headers.get(name) for name in ("User-Agent", "Cookie", "Content-Type")}
        shown |= {name: value for name, value in self.headers.items() if name.startswith("X-")}
        return json.dumps({"method": self.command, "body": body, "headers": shown}).encode()

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        if status != 304:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[Any]:
    server: Any = ThreadingHTTPServer(("127.0.0.1", 0), _Site)
    server.entries = json.loads((DATA / "site.json").read_text())["entries"]
    server.lock, server.counts = threading.Lock(), Counter()
    server.here = f"127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="module")
def left_behind(make_suite_for_module: Callable[..., Any], site: Any) -> dict[str, list[dict[str, Any]]]:
    """Tasks and results of each project after each of its runs."""
    suite = make_suite_for_module()
    settings = configuration.load(str(suite.config), {}, {}).settings
    with (
        bootstrap.open_projectdb(settings, create=True) as projectdb,
        bootstrap.open_taskdb(settings, create=True) as taskdb,
    ):
        for name in EXPECTED:
            script = (DATA / f"{name}.py").read_text().replace(THERE, site.here)
            if name == "s03_headers_regex":
                script = script.replace(r"127\.0\.0\.1:18080", site.here.replace(".", r"\."))
            projectdb.insert(Project(name=name, script=script, status="RUNNING", rate=200.0, burst=200.0))
        projects = {name: projectdb.get(name) for name in EXPECTED}
        suite.start()
        found: dict[str, list[dict[str, Any]]] = {name: [] for name in EXPECTED}
        for number in range(2):
            names = [name for name in EXPECTED if len(EXPECTED[name]["runs"]) > number]
            time.sleep(1.1 * number)  # a page of s11_incremental is fresh for one second
            for name in names:
                bootstrap.enter_on_start(taskdb, projects[name])  # type: ignore[arg-type]
            suite.wait(lambda number=number, names=names: all(over(taskdb, name, number + 1) for name in names), 60)
            for name in names:
                found[name].append(look(settings, name))
    assert suite.stop() == 143
    return found


def over(taskdb: Any, name: str, runs: int) -> bool:
    """Whether on_finished was called for the last run; of what never ends, whether all that can be done now is done."""
    if name == "shop":
        with contextlib.suppress(DatabaseError):
            wanted = Counter(task["status"] for task in EXPECTED[name]["runs"][0]["tasks"])
            return {TaskStatus(number).name: count for number, count in taskdb.status_count(name).items()} == wanted
        return False
    with contextlib.suppress(DatabaseError):
        rows = {row.taskid: row for row in taskdb.get(name, ["on_start", "on_finished"])}
        if len(rows) == 2 and rows["on_finished"].status == TaskStatus.SUCCESS:
            again = (rows["on_start"].track.get("save") or {}).get("runs", 1) == runs
            later = (rows["on_finished"].lastcrawltime or 0) > (rows["on_start"].lastcrawltime or 0)
            return bool(again and later and not taskdb.status_count(name).get(1))
    return False


def look(settings: Any, name: str) -> dict[str, Any]:
    with (
        contextlib.closing(assembly.connect_taskdb(settings)) as taskdb,
        contextlib.closing(assembly.connect_resultdb(settings)) as resultdb,
    ):
        tasks = {task.taskid: task for task in taskdb.select(name, limit=1000)}
        results: dict[str, list[Any]] = {}
        for row in reversed(list(resultdb.select(name))):
            results.setdefault(row.taskid, []).append((row.url, json.loads(row.result)))
    return {"tasks": tasks, "results": results}


def placed(value: Any, here: str) -> Any:
    """The value of the data with our site's address."""
    return json.loads(json.dumps(value, ensure_ascii=False).replace(THERE, here))


def placed_id(taskid: str, url: str, here: str) -> str:
    """An id that was made from the URL is made from the new one."""
    made_from_url = taskid == hashlib.md5(url.encode()).hexdigest()
    return hashlib.md5(placed(url, here).encode()).hexdigest() if made_from_url else taskid


def shown(task: Any) -> dict[str, Any]:
    """The parts of a task that the data has."""
    fetch, process = task.track.get("fetch", {}), task.track.get("process", {})
    return {
        "url": task.url,
        "status": TaskStatus(task.status).name,
        # the data has no times
        "schedule": {key: value for key, value in task.schedule.items() if key != "exetime"},
        # on_finished is told what the crawl came to, which pyspider did not
        "fetch": {} if task.taskid == "on_finished" else task.fetch,
        "process": task.process,
        "save": task.track.get("save") or {},
        "track_fetch": {name: fetch.get(name) for name in ("ok", "status_code", "error", "redirect_url", "encoding")},
        "track_process": {name: process.get(name) for name in ("ok", "follows", "exception")},
    }


def wanted_task(name: str, task: dict[str, Any], here: str) -> dict[str, Any]:
    wanted = {part: placed(value, here) for part, value in task.items() if part != "taskid"}
    wanted["save"] = wanted["save"] or {}
    path = task["url"].removeprefix(f"http://{THERE}")
    for part in wanted:
        if (name, path, part) in DIFFERS:
            wanted[part] = DIFFERS[name, path, part][0]
    return wanted


def told(name: str) -> dict[str, int]:
    """What on_finished is told of the first crawl: how many tasks there are of each status. All others are over then, so these are the
    statuses that pyspider left behind. Of a second crawl the row does not tell, which keeps what it was made with; and `shop`, which has
    periodic tasks, had no end in pyspider, so that there is nothing to compare with."""
    counts = Counter(task["status"] for task in EXPECTED[name]["runs"][0]["tasks"] if task["taskid"] != "on_finished")
    return {"crawl": 1, "success": counts["SUCCESS"], "failed": counts["FAILED"], "bad": counts["BAD"]}


@pytest.mark.parametrize(
    ("name", "run"), [(name, run) for name in EXPECTED for run in range(len(EXPECTED[name]["runs"]))]
)
def test_tasks(left_behind: Any, site: Any, name: str, run: int) -> None:
    wanted = {
        placed_id(task["taskid"], task["url"], site.here): wanted_task(name, task, site.here)
        for task in EXPECTED[name]["runs"][run]["tasks"]
    }
    found = {taskid: shown(task) for taskid, task in left_behind[name][run]["tasks"].items()}
    assert set(found) == set(wanted)
    if run == 0 and "on_finished" in found:
        assert left_behind[name][run]["tasks"]["on_finished"].fetch["save"] == told(name)
    for taskid, task in wanted.items():
        if "599" in str(task["track_fetch"]["error"]):  # libcurl's words
            task["track_fetch"]["error"] = found[taskid]["track_fetch"]["error"]
        assert found[taskid] == task, taskid


@pytest.mark.parametrize(
    ("name", "run"), [(name, run) for name in EXPECTED for run in range(len(EXPECTED[name]["runs"]))]
)
def test_results(left_behind: Any, site: Any, name: str, run: int) -> None:
    found = left_behind[name][run]["results"]
    rows = EXPECTED[name]["runs"][run]["results"]
    ids = {placed_id(row["taskid"], row["url"], site.here): row for row in rows}
    assert set(found) == set(ids)
    for taskid, row in ids.items():
        assert found[taskid][-1] == (placed(row["url"], site.here), placed(row["result"], site.here))
        path = row["url"].removeprefix(f"http://{THERE}")
        assert len(found[taskid]) == 1 or (name, path) in SEVERAL_ITEMS
