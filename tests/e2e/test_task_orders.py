"""`task retry|cancel|set|list` on a crawl that runs, with real daemons."""

import http.server
import re
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

pytestmark = pytest.mark.e2e

SCRIPT = """
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    crawl_config = {"itag": "1"}
    retry_delay = {"": 3600}

    def on_start(self):
        for number in range(40):
            self.crawl("http://127.0.0.1:PORT/page/%d" % number, callback=self.page, retries=number % 2)
        self.crawl("http://127.0.0.1:PORT/other", callback=self.other, retries=0)
        self.crawl("http://127.0.0.1:1/refused", callback=self.page, retries=0)
        self.crawl("http://127.0.0.1:PORT/later", callback=self.page, exetime=4e9)
        self.crawl("http://127.0.0.1:PORT/later-too", callback=self.page, exetime=4e9)

    def page(self, response):
        return {"url": response.url}

    def other(self, response):
        return {"title": {}["none"]}
"""


class Site:
    """Answers with ``status``, and remembers what was asked."""

    def __init__(self) -> None:
        self.status = 200
        self.asked: list[str] = []
        site = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                self.send_response(site.status if "page" in self.path else 200)
                self.send_header("Content-Length", "2")
                self.end_headers()
                self.wfile.write(b"ok")

            def log_message(self, *arguments: object) -> None: ...

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.thread = threading.Thread(target=self.server.serve_forever, args=(0.05,))
        self.thread.start()

    def close(self) -> None:
        self.server.shutdown()
        self.thread.join()
        self.server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()
    yield site
    site.close()


def test_tasks_are_run_again_cancelled_and_moved(
    make_suite: Callable[..., Any], site: Site, command: Callable[..., Any]
) -> None:
    site.status = 503
    suite = make_suite(scheduler={"fail_pause_num": 0})
    suite.start()
    suite.push("shop", SCRIPT.replace("PORT", str(site.server.server_port)), "--burst", "unlimited")
    # 20 pages without retries, the broken callback and the refused connection have failed; 20 pages wait for a retry
    suite.wait(lambda: suite.statuses("shop") == {1: 22, 2: 1, 3: 22})
    suite.wait(lambda: len(suite.query("task", "select 1 from taskdb_shop where status=1 and lastcrawltime > 0")) == 20)

    def task(verb: str, *words: str) -> str:
        outcome = command("-c", str(suite.config), "task", verb, "shop", *words)
        assert outcome.code == 0, outcome.err
        return str(outcome.out).strip()

    def count(*words: str) -> int:
        found = re.match(r"\d+(?= tasks? would be)|no task fits", task("retry", "--dry-run", *words))
        assert found
        return int(found[0]) if found[0].isdigit() else 0

    assert count("--failed") == 22
    assert count("--waiting") == count("--waiting", "--error", "503") == 20
    assert count("--error", "5xx") == count("--error", "503", "--error", "http") == 40
    assert count("--error", "connect") == count("--error", "fetch") == 1
    assert count("--error", "KeyError") == count("--error", "script", "--failed") == count("--callback", "other") == 1
    assert count("--callback", "page") == 41
    assert count("--all") == 42
    assert count("--error", "timeout") == 0
    assert task("list", "--error", "connect").endswith("/refused")
    assert '"error": "KeyError, script"' in task("show", *task("list", "--callback", "other").split()[3:4])

    site.status = 200
    site.asked.clear()
    later = [f"http://127.0.0.1:{site.server.server_port}/{name}" for name in ("later", "later-too")]
    assert task("set", *later, "--priority", "5") == "2 given this priority"
    assert suite.query("task", "select priority from taskdb_shop where url like '%later%'") == [(5,), (5,)]
    assert task("cancel", later[0]) == "1 cancelled"
    assert task("retry", "--error", "http") == "40 run again"
    suite.wait(lambda: suite.statuses("shop") == {1: 1, 2: 41, 3: 2, 4: 1})
    assert sorted(site.asked) == sorted(f"/page/{number}" for number in range(40))
    assert len(suite.results("shop")) == 40

    # for the time that its submission chose
    assert task("retry", "--cancelled") == "0 run again, 1 waiting again for the exetime of their submission"
    assert task("retry", *later) == "0 run again, 2 left alone: waits already"
    assert suite.statuses("shop") == {1: 2, 2: 41, 3: 2}
    assert task("cancel", "--all") == "2 cancelled"
    assert task("cancel", "--all") == "no task fits"
    suite.wait(lambda: suite.finished("shop"))
    # all that ran, on_start and on_finished excepted
    suite.wait(lambda: suite.statuses("shop").get(1, 0) == 0)
    assert count("--all") == 42 and not any("later" in path for path in site.asked)


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("retry", "shop"), "say which tasks"),
        (("retry", "shop", "--failed", "abc"), "not both"),
        (("retry", "shop", "abc"), "there is no task abc in the project shop"),
        (("retry", "shop", "--error", "tiemout"), "did you mean timeout?"),
        (("cancel", "shpo", "--all"), "did you mean shop?"),
        (("retry", "shop", "on_start"), "no scheduler leads now"),
    ],
)
def test_mistakes_are_one_sentence(
    command_on_rows: Callable[..., tuple[int, str]], words: tuple[str, ...], sentence: str
) -> None:
    code, said = command_on_rows("task", *words)
    assert code in (2, 3)
    assert sentence in said
    assert said.count("\n") == 1


@pytest.fixture
def command_on_rows(command: Callable[..., object], tmp_path, monkeypatch) -> Callable[..., tuple[int, str]]:
    """Runs a command in a folder where a project shop has one task and nothing runs."""
    from contextlib import closing

    from pyspider_lite.database import connect_taskdb
    from pyspider_lite.database.base import NewRow
    from pyspider_lite.models.task import NewTask

    monkeypatch.chdir(tmp_path)
    (tmp_path / "data").mkdir()
    with closing(connect_taskdb(f"sqlite+taskdb:///{tmp_path}/data/task.db")) as taskdb:
        taskdb.open_project("shop")
        row = NewRow(task=NewTask("on_start", "shop", "data:,on_start"), due=0.0, priority=0, updatetime=0.0)
        with taskdb.begin(None) as tx:
            tx.insert("shop", [row])

    def run(*words: str) -> tuple[int, str]:
        outcome = command(*words)
        return outcome.code, outcome.err

    return run
