"""Scripts in the style in which pyspider's users publish them, run by the real daemons; results and statuses are literals beside them.

All projects of `scripts/` run at once, on SQLite with the built-in queues and on MariaDB with Redis. What is expected of NAME.py is in
NAME.json: ``results`` as [url, value], ``tasks`` as numbers by status (absent where the script never ends), ``requests`` at least.
To write them anew: `WRITE_EXPECTED=1 pytest tests/e2e/test_scripts.py -k sqlite`, and then read what was written.
"""

import contextlib
import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from scripts_site import SiteServer

from pyspider_lite import assembly, bootstrap, configuration
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import TaskStatus

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(300)]

SCRIPTS = {path.stem: path for path in sorted((Path(__file__).parent / "scripts").glob("*.py"))}
#: seconds that all of them may take
LIMIT = 90.0
#: requests that a script makes at least
REQUESTS = 10


#: what a script proves, beside working
BEHAVIOURS = {
    "age_itag": ["H54"],
    "catch_status": ["H35", "R9"],
    "curl_commands": ["H70", "H72"],
    "every_recrawl": ["H64", "S41"],
    "finish_twice": ["H62", "S50"],
    "generators": ["H23", "X-K15"],
    "headers_config": ["H14", "H30", "H57", "H59"],
    "list_detail": ["H30"],
    "login_cookies": ["F19"],
    "message_fanout": ["H61"],
    "on_result_override": ["H24"],
    "post_paging": ["H43"],
    "post_paging_plain": ["H43", "X-K5"],
    "projects_import": ["H7"],
    "python2_habits": ["H5", "H6"],
    "retry_delay": ["H14", "S42"],
    "robots": ["F30"],
    "save_state": ["H60", "X-K13"],
    "url_lists": ["H40", "X-K4"],
    "xpath_etree": ["R6"],
}


class Found(NamedTuple):
    """What one project left behind."""

    results: list[Any]
    tasks: dict[str, int]
    requests: int


def in_order(rows: Any) -> list[Any]:
    return sorted(rows, key=lambda row: json.dumps(row, sort_keys=True))


class Crawl:
    """All projects on one suite."""

    def __init__(self, suite: Any, folder: Path, stack: contextlib.ExitStack) -> None:
        self.settings = configuration.load(str(suite.config), {}, {}).settings
        self.sites: dict[str, SiteServer] = {}
        for number, name in enumerate(SCRIPTS, 1):
            site = self.sites[name] = SiteServer(f"127.0.1.{number}")
            stack.callback(site.close)
        with (
            bootstrap.open_projectdb(self.settings, create=True) as projectdb,
            bootstrap.open_taskdb(self.settings, create=True) as taskdb,
        ):
            for name, path in SCRIPTS.items():
                script = self.sites[name].place(path.read_text()).replace("FOLDER", str(folder))
                infinite = float("inf")
                projectdb.insert(Project(name=name, script=script, status="RUNNING", rate=infinite, burst=infinite))
            for name in SCRIPTS:
                project = projectdb.get(name)
                assert project is not None
                bootstrap.enter_on_start(taskdb, project)

    def look(self) -> dict[str, Found]:
        """What there is now."""
        found = {}
        with (
            contextlib.closing(assembly.connect_taskdb(self.settings)) as taskdb,
            contextlib.closing(assembly.connect_resultdb(self.settings)) as resultdb,
        ):
            for name, site in self.sites.items():
                rows = []
                counts: dict[int, int] = {}
                with contextlib.suppress(DatabaseError):
                    rows = [[row.url, json.loads(row.result)] for row in resultdb.select(name)]
                    counts = taskdb.status_count(name)
                tasks = {TaskStatus(status).name: count for status, count in counts.items() if count}
                plain = json.loads(site.displace(json.dumps(rows)))
                found[name] = Found(in_order(plain), tasks, sum(site.requests.values()))
        return found


def expected(name: str) -> dict[str, Any]:
    file = SCRIPTS[name].with_suffix(".json")
    wanted: dict[str, Any] = json.loads(file.read_text()) if file.exists() else {"results": None}
    return wanted


def fits(name: str, found: Found) -> bool:
    wanted = expected(name)
    return (
        found.results == in_order(wanted["results"] or [])
        and wanted.get("tasks") in (None, found.tasks)
        and found.requests >= REQUESTS
    )


@pytest.fixture(scope="module", params=["sqlite", "mariadb"])
def crawled(
    request: pytest.FixtureRequest, make_suite_for_module: Callable[..., Any], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[str, Found]]:
    """Runs all scripts until what they leave behind is as expected, or the time is over."""
    with contextlib.ExitStack() as stack:
        folder = tmp_path_factory.mktemp("own")
        suite = make_suite_for_module(**(request.getfixturevalue("on_servers")() if request.param == "mariadb" else {}))
        crawl = Crawl(suite, folder, stack)
        suite.start()
        began = time.monotonic()
        found = crawl.look()
        while time.monotonic() - began < LIMIT:
            assert suite.process.poll() is None, suite.tail()
            found = crawl.look()
            if all(fits(name, each) for name, each in found.items()):
                break
            time.sleep(1.0)
        print(
            f"{request.param}: {time.monotonic() - began:.1f} s, {sum(each.requests for each in found.values())} requests"
        )
        suite.stop()
        found = crawl.look()
        if os.environ.get("WRITE_EXPECTED"):
            for name, each in found.items():
                write(name, each)
        yield found


def write(name: str, found: Found) -> None:
    """The file of a script, for whoever reads it afterwards."""
    rows = ",\n".join(f"  {json.dumps(row, ensure_ascii=False)}" for row in found.results)
    tasks = "" if found.tasks.get("ACTIVE") else f',\n "tasks": {json.dumps(found.tasks)}'
    SCRIPTS[name].with_suffix(".json").write_text(f'{{"results": [\n{rows}\n ]{tasks}}}\n')


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.behaviour(*BEHAVIOURS.get(name, []))) for name in SCRIPTS]
)
def test_script(crawled: dict[str, Found], name: str) -> None:
    found, wanted = crawled[name], expected(name)
    assert found.results == in_order(wanted["results"])
    assert Counter(found.tasks) == Counter(wanted.get("tasks", found.tasks))
    assert found.requests >= REQUESTS
