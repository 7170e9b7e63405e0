"""Crawls a generated site with `all` and says what it cost: ``python -m pyspider_lite.bench`` (`scripts/bench`).

Completeness is checked first: every page of the site exactly once in the resultdb, with its own title; a run that is not complete
fails, whatever its speed.
"""

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import click

from pyspider_lite.bench import many, processes, site

_HANDLERS = {
    "links": """
        tree = response.etree
        for url in response.links():
            self.crawl(url, callback=self.page)
        return {"url": response.url, "title": tree.findtext(".//title")}""",
    "doc": """
        for each in response.doc('a[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.page)
        return {"url": response.url, "title": response.doc("title").text()}""",
}
_SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("START", callback=self.page)

    def page(self, response):BODY
"""
_PROJECT = "bench"
#: seconds without a new result after which a run has failed
_STANDSTILL = 60.0


def _config(folder: Path, processors: int) -> Path:
    config = {
        "data_path": str(folder / "data"),
        "all": {"fetcher_num": 1, "processor_num": processors, "result_worker_num": 1},
        "scheduler": {"xmlrpc_port": 0},
        "fetcher": {"xmlrpc_port": 0},
    }
    path = folder / "config.json"
    path.write_text(json.dumps(config))
    return path


def _command(config: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "pyspider_lite", "-c", str(config), *words]


def _rows(folder: Path) -> list[tuple[str, Any]]:
    """What the resultdb holds: url and value of each row."""
    path = folder / "data" / "result.db"
    if not path.exists():
        return []
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10) as database:
        try:
            rows = database.execute(f"select url, result from resultdb_{_PROJECT}").fetchall()
        except sqlite3.OperationalError:
            return []
    database.close()
    return [(url, json.loads(result)) for url, result in rows]


def _count(folder: Path) -> int:
    path = folder / "data" / "result.db"
    if not path.exists():
        return 0
    database = sqlite3.connect(f"file:{path}?mode=ro", uri=True, timeout=10)
    try:
        return int(database.execute(f"select count(*) from resultdb_{_PROJECT}").fetchone()[0])
    except sqlite3.OperationalError:
        return 0
    finally:
        database.close()


def _check(rows: list[tuple[str, Any]], served: site.Site) -> str:
    """What is wrong with the results, "" if nothing is."""
    expected = {f"http://127.0.0.1:{served.port}/{index}.html": site.title(index) for index in range(served.pages)}
    found = Counter(url for url, _ in rows)
    twice = [url for url, count in found.items() if count > 1]
    wrong = [url for url, value in rows if value.get("title") != expected.get(url)]
    missing = expected.keys() - found.keys()
    problems = {"missing": missing, "twice": twice, "wrong": wrong, "strange": found.keys() - expected.keys()}
    return ", ".join(f"{len(urls)} {name}" for name, urls in problems.items() if urls)


class _Killer:
    """SIGKILLs each child of the suite ``times`` times, in a random order, evenly over the crawl: so that there is work in hand."""

    def __init__(self, parent: int, times: int, pages: int) -> None:
        self._parent = parent
        names = [processes.role(pid) for pid in processes.tree(parent)[1:]] if times else []
        self._plan = names * times
        random.Random(1).shuffle(self._plan)
        self._every = 0.9 * pages / (len(self._plan) + 1)
        self.killed = 0

    def look(self, done: int) -> None:
        """Kill what is due when ``done`` pages are stored."""
        if self.killed >= len(self._plan) or done < (self.killed + 1) * self._every:
            return
        name = self._plan[self.killed]
        victims = [pid for pid in processes.tree(self._parent)[1:] if processes.role(pid) == name]
        if victims:
            os.kill(random.Random(self.killed).choice(victims), signal.SIGKILL)
            self.killed += 1


@click.command()
@click.option("--pages", default=10_000, show_default=True)
@click.option("--size", default=5_000, show_default=True, help="Bytes of a page.")
@click.option("--processors", default=2, show_default=True)
@click.option("--handler", type=click.Choice(sorted(_HANDLERS)), default="links", show_default=True)
@click.option("--kill", default=0, help="Kill each child process so many times on the way.")
@click.option("--projects", default=0, help="Crawl so many projects of ten pages each instead.")
@click.option(
    "--floor", is_flag=True, help="Then crawl the same site with a bare loop of pycurl and lxml, for comparison."
)
@click.option("--json", "json_file", type=click.Path(), help="Write the figures to this file.")
@click.option("--keep", type=click.Path(), help="Folder to work in; it is kept.")
@click.option("--verbose", is_flag=True, help="Show the log of the suite.")
def main(
    pages: int,
    size: int,
    processors: int,
    handler: str,
    kill: int,
    projects: int,
    floor: bool,
    json_file: str | None,
    keep: str | None,
    verbose: bool,
) -> None:
    """Crawl a generated site with `all`; exit 1 if the results are not exactly its pages."""
    with tempfile.TemporaryDirectory() as temporary, site.Site(many.PAGES if projects else pages, size) as served:
        folder = Path(keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if projects:
            figures = _run_many(folder, served, projects, processors, handler, verbose)
        else:
            figures = _run(folder, served, processors, handler, kill, verbose)
        if floor:
            figures["floor"] = _floor(served)
    print(json.dumps({key: value for key, value in figures.items() if key != "processes"}))
    for name, values in sorted(figures["processes"].items()):
        idle = f"  {values['idle_percent']:5.1f} % idle" if projects else ""
        print(f"  {name:45} {values['cpu_ms_page']:7.3f} ms/page  {values['rss_mb']:5.0f} MB{idle}")
    if json_file:
        Path(json_file).write_text(json.dumps(figures, indent=1))
    if figures["problems"]:
        sys.exit(f"not complete: {figures['problems']}")


def _floor(served: site.Site) -> dict[str, Any]:
    """The figures of the floor on the same site, in the same run."""
    words = [sys.executable, "-m", "pyspider_lite.bench.floor", served.url]
    figures: dict[str, Any] = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return figures


def _script(handler: str, served: site.Site) -> str:
    return _SCRIPT.replace("START", served.url).replace("BODY", _HANDLERS[handler])


def _run_many(
    folder: Path, served: site.Site, projects: int, processors: int, handler: str, verbose: bool
) -> dict[str, Any]:
    command = _command(_config(folder, processors), "all")
    with open(folder / "log.txt", "wb") as log:
        return many.measure(
            folder,
            served,
            projects,
            _script(handler, served),
            lambda: subprocess.Popen(command, stderr=None if verbose else log, stdout=log),
        )


def _run(folder: Path, served: site.Site, processors: int, handler: str, kill: int, verbose: bool) -> dict[str, Any]:
    config = _config(folder, processors)
    script = folder / "bench.py"
    script.write_text(_script(handler, served))
    with open(folder / "log.txt", "wb") as log:
        began = time.monotonic()
        suite = subprocess.Popen(_command(config, "all"), stderr=None if verbose else log, stdout=log)
        try:
            push = _command(config, "project", "push", str(script), "--name", _PROJECT, "--rate", "unlimited")
            subprocess.run(push, check=True, stdout=log, stderr=log)
            subprocess.run(_command(config, "project", "run", _PROJECT), check=True, stdout=log, stderr=log)
            figures = _watch(folder, served, suite, kill)
        finally:
            suite.terminate()
            try:
                suite.wait(40)
            except subprocess.TimeoutExpired:
                suite.kill()
    figures["start_s"] = round(figures.pop("first") - began, 2)
    figures["problems"] = _check(_rows(folder), served)
    figures["requests"] = sum(served.requests.values())
    return figures


def _watch(folder: Path, served: site.Site, suite: subprocess.Popen[bytes], kill: int) -> dict[str, Any]:
    """Wait until all pages are stored; the figures of the crawl itself, from the first request on."""
    killer = _Killer(suite.pid, kill, served.pages)
    while not served.requests and suite.poll() is None:
        time.sleep(0.005)
    first = changed = time.monotonic()
    before = {pid: processes.cpu(pid) for pid in processes.tree(suite.pid)}
    dead_before = processes.dead_children_cpu(suite.pid)
    done = 0
    while done < served.pages and time.monotonic() - changed < _STANDSTILL and suite.poll() is None:
        time.sleep(0.1)
        count = _count(folder)
        if count != done:
            done, changed = count, time.monotonic()
        killer.look(done)
    wall = time.monotonic() - first
    after = {pid: processes.cpu(pid) for pid in processes.tree(suite.pid)}
    used = {pid: seconds - before.get(pid, 0.0) for pid, seconds in after.items()}
    total = sum(used.values()) + processes.dead_children_cpu(suite.pid) - dead_before
    each = {
        f"{processes.role(pid)} {pid}": {
            "cpu_ms_page": 1000 * seconds / max(1, done),
            "rss_mb": processes.rss(pid) / 1e6,
        }
        for pid, seconds in used.items()
    }
    return {
        "pages": done,
        "seconds": round(wall, 2),
        "pages_per_s": round(done / wall, 1),
        "cpu_ms_page": round(1000 * total / max(1, done), 3),
        "killed": killer.killed,
        "first": first,
        "processes": each,
    }


if __name__ == "__main__":
    main()
