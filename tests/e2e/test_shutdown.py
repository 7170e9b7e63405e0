"""SIGTERM with work in hand: a daemon ends within `drain-timeout`, and what it did not finish is given back at once; a second signal
ends it at once; nobody outlives the parent (demands UA48 and UC15). Real daemons, on their own queues and SQLite, and on Redis and MariaDB.
"""

import contextlib
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pymysql
import pytest

from pyspider_lite.bench import processes
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.redis import Redis

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(240)]

#: seconds
DRAIN = 2.0
#: of `all`, which four stages share
DRAIN_ALL = 8.0
#: what the interpreter and a busy machine may add to it
SLACK = 8.0
ROLES = ("scheduler", "result_worker", "processor", "fetcher")
SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range(10):
            self.crawl(f"SITEslow/{number}", callback=self.page)
        self.crawl([f"SITEquick/{number}" for number in range(20)], callback=self.page)

    def page(self, response):
        return {"url": response.url}
"""
LONG = """
import os, subprocess, time
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,long", callback=self.long, process_time_limit=0)

    def long(self, response):
        with open("NOTES", "a") as notes:
            notes.write("began\\n")
        subprocess.Popen(["sleep", "500"], start_new_session=True)
        while not os.path.exists("NOTES.end"):
            time.sleep(0.05)
        return {"url": "long"}
"""


class SlowSite:
    """Pages under /slow/ come once `open` is set."""

    def __init__(self) -> None:
        self.requests: list[str] = []
        self.open = threading.Event()
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.requests.append(self.path)
                if self.path.startswith("/slow/"):
                    site.open.wait(120)
                with contextlib.suppress(OSError):
                    self.send_response(200)
                    self.send_header("Content-Length", "2")
                    self.end_headers()
                    self.wfile.write(b"ok")

            def log_message(self, *_: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self._server.server_port}/"

    def slow(self) -> int:
        """Requests for slow pages so far."""
        return sum(path.startswith("/slow/") for path in self.requests)

    def __enter__(self) -> "SlowSite":
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.open.set()
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def slow_site() -> Iterator[SlowSite]:
    with SlowSite() as site:
        yield site


def began(notes: Path) -> int:
    return notes.read_text().count("began") if notes.exists() else 0


def scripts(site: SlowSite, notes: Path) -> dict[str, str]:
    """Project -> script."""
    return {"pages": SCRIPT.replace("SITE", site.url), "long": LONG.replace("NOTES", str(notes))}


def test_all_gives_back_what_it_cannot_finish(
    make_suite: Callable[..., Any], slow_site: SlowSite, tmp_path: Path
) -> None:
    notes = tmp_path / "notes"
    suite = make_suite(drain_timeout=DRAIN_ALL)
    suite.start()
    for name, script in scripts(slow_site, notes).items():
        suite.push(name, script)
    suite.wait(lambda: slow_site.slow() == 10 and began(notes) == 1 and len(suite.results("pages")) == 20)
    everyone = processes.tree(suite.process.pid)
    began_at = time.monotonic()
    assert suite.stop() == 143
    # role after role, within one drain time
    assert time.monotonic() - began_at < DRAIN_ALL + 2.0
    assert not [pid for pid in everyone if Path(f"/proc/{pid}").exists()]
    # started again, it goes on where it was
    suite.start()
    suite.wait(lambda: slow_site.slow() == 20 and began(notes) == 2)
    slow_site.open.set()
    Path(f"{notes}.end").touch()
    suite.wait(lambda: len(suite.results("pages")) == 30 and suite.results("long"))
    assert suite.stop() == 143


def test_nobody_outlives_all(make_suite: Callable[..., Any], slow_site: SlowSite, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    suite = make_suite()
    suite.start()
    for name, script in scripts(slow_site, notes).items():
        suite.push(name, script)
    suite.wait(lambda: slow_site.slow() == 10 and began(notes) == 1)
    everyone = processes.tree(suite.process.pid)
    names = [Path(f"/proc/{pid}/comm").read_text() for pid in everyone]
    assert "sleep\n" in names and len(everyone) >= 8
    assert suite.stop(signal.SIGKILL) == -signal.SIGKILL
    until = time.monotonic() + 5
    while left := [pid for pid in everyone if alive(pid)]:
        assert time.monotonic() < until, left
        time.sleep(0.02)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_all_says_who_cannot_start(make_suite: Callable[..., Any]) -> None:
    suite = make_suite(processor={"processor_cls": "no_such_module.Processor"})
    suite.start()
    assert suite.process.wait(90) == 2
    assert "no_such_module" in suite.log.read_text() and "processor[0] could not start" in suite.log.read_text()
    assert "Traceback" not in suite.log.read_text()


class Daemons:
    """One of each role on a broker and a database."""

    def __init__(self, folder: Path, broker: Any, database: Any) -> None:
        self.folder = folder
        self.database = database
        self.running: dict[str, subprocess.Popen[bytes]] = {}
        config = {
            "data_path": str(folder / "data"),
            "message_queue": broker.url,
            "drain_timeout": DRAIN,
            "scheduler": {"xmlrpc_port": 0},
            "fetcher": {"xmlrpc_port": 0},
            **{kind: database.url(kind) for kind in ("taskdb", "projectdb", "resultdb")},
        }
        self.config = folder / "config.json"
        self.config.write_text(json.dumps(config))

    def words(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "pyspider_lite", "-c", str(self.config), *words]

    def start(self, *roles: str) -> None:
        for role in roles:
            with open(self.folder / f"{role}.log", "ab") as log:
                self.running[role] = subprocess.Popen(self.words(role), stdout=log, stderr=log, cwd=self.folder)

    def log(self, role: str) -> str:
        return (self.folder / f"{role}.log").read_text(errors="replace")

    def command(self, *words: str) -> None:
        done = subprocess.run(self.words(*words), capture_output=True, text=True, cwd=self.folder, timeout=60)
        assert done.returncode == 0, done.stderr

    def push(self, name: str, script: str) -> None:
        (self.folder / f"{name}.py").write_text(script)
        self.command("project", "push", f"{name}.py", "--name", name, "--rate", "unlimited")
        self.command("project", "run", name)

    def results(self) -> int:
        count = 0
        for name in ("pages", "long"):
            with contextlib.suppress(pymysql.err.ProgrammingError):  # no such table yet
                count += int(self.database.execute(f"select count(*) from resultdb.{name}")[0][0])
        return count

    def wait(self, condition: Callable[[], Any], timeout: float = 60.0) -> None:
        until = time.monotonic() + timeout
        while not condition():
            assert time.monotonic() < until, "\n".join(self.log(role)[-2000:] for role in ROLES)
            time.sleep(0.05)

    def end(self, role: str, *signals: int) -> float:
        """Send signals to one; seconds until it was gone."""
        daemon = self.running.pop(role)
        since = time.monotonic()
        for number in signals:
            daemon.send_signal(number)
            time.sleep(0.3 if len(signals) > 1 else 0)
        assert daemon.wait(60) == 128 + signals[-1], self.log(role)[-3000:]
        return time.monotonic() - since

    def kill_all(self) -> None:
        for daemon in self.running.values():
            daemon.kill()
            daemon.wait()


@pytest.fixture
def daemons(tmp_path: Path) -> Iterator[Daemons]:
    with Redis() as broker, MariaDb() as database:
        made = Daemons(tmp_path, broker, database)
        yield made
        made.kill_all()


def test_each_role_gives_back_what_it_cannot_finish(daemons: Daemons, slow_site: SlowSite, tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    daemons.start(*ROLES)
    daemons.wait(lambda: "leading" in daemons.log("scheduler"))
    for name, script in scripts(slow_site, notes).items():
        daemons.push(name, script)
    daemons.wait(lambda: slow_site.slow() == 10 and began(notes) == 1)
    children = processes.tree(daemons.running["processor"].pid)
    took = {role: daemons.end(role, signal.SIGTERM) for role in ("fetcher", "processor")}
    assert max(took.values()) < DRAIN + SLACK, took
    assert not [pid for pid in children if alive(pid)]
    # others get it at once: nobody has to be missed first
    daemons.start("fetcher", "processor")
    daemons.wait(lambda: slow_site.slow() == 20 and began(notes) == 2)
    # the second signal does not wait
    took = {role: daemons.end(role, signal.SIGTERM, signal.SIGTERM) for role in ("fetcher", "processor")}
    assert max(took.values()) < 2.0, took
    daemons.start("fetcher", "processor")
    slow_site.open.set()
    Path(f"{notes}.end").touch()
    # now those who write, in the middle of it
    daemons.wait(lambda: slow_site.slow() >= 21)
    daemons.database.freeze()
    time.sleep(1.0)
    took = {role: daemons.end(role, signal.SIGTERM) for role in ("result_worker", "scheduler")}
    assert max(took.values()) < DRAIN + SLACK + 5, took
    daemons.database.thaw()
    daemons.start("result_worker", "scheduler")
    daemons.wait(lambda: daemons.results() == 31)
