"""One crawl of a generated site by a suite: until it is complete, what it cost, and whether it is right."""

import os
import random
import signal
import time
from collections import Counter
from pathlib import Path
from typing import Any

from pyspider_lite.bench import processes, site
from pyspider_lite.bench.suite import Plan, Suite

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
HANDLERS = sorted(_HANDLERS)
_SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("START", callback=self.page)

    def page(self, response):BODY
"""
_PROJECT = "bench"
#: seconds without a new result after which a run has failed
_STANDSTILL = 60.0


def script(handler: str, served: site.Site) -> str:
    """The handler of that name for this site."""
    return _SCRIPT.replace("START", served.url).replace("BODY", _HANDLERS[handler])


def measure(
    folder: Path, served: site.Site, plan: Plan, *, processors: int, handler: str, kill: int, verbose: bool
) -> dict[str, Any]:
    """Crawl ``served``; figures, with ``problems`` "" if every page was stored exactly once with its own title."""
    served.requests.clear()
    with Suite(folder, plan, processors=processors, verbose=verbose) as suite:
        began = time.monotonic()
        file = folder / "bench.py"
        file.write_text(script(handler, served))
        suite.command("project", "push", str(file), "--name", _PROJECT, "--rate", "unlimited")
        suite.command("project", "run", _PROJECT)
        figures = _watch(suite, served, kill)
        suite.stop()
        figures["problems"] = _check(suite.rows(_PROJECT), served)
    figures["backends"] = plan.name
    figures["start_s"] = round(figures.pop("first") - began, 2)
    figures["requests"] = served.requests.total()
    return figures


def _watch(suite: Suite, served: site.Site, kill: int) -> dict[str, Any]:
    """Wait until all pages are stored; the figures of the crawl itself, from the first request on."""
    killer = _Killer(suite, kill, served.pages)
    while not served.requests and suite.runs:
        time.sleep(0.005)
    first = changed = time.monotonic()
    roots = [root.pid for root in suite.roots]
    before = {pid: processes.cpu(pid) for pid in suite.pids()}
    dead_before = sum(map(processes.dead_children_cpu, roots))
    servers_before = suite.server_cpu()
    done = 0
    while done < served.pages and time.monotonic() - changed < _STANDSTILL and suite.runs:
        time.sleep(0.1)
        count = suite.count(_PROJECT)
        if count != done:
            done, changed = count, time.monotonic()
        killer.look(done)
    wall = time.monotonic() - first
    used = {pid: processes.cpu(pid) - before.get(pid, 0.0) for pid in suite.pids()}
    total = sum(used.values()) + sum(map(processes.dead_children_cpu, roots)) - dead_before
    per_page = 1000 / max(1, done)
    each = {
        f"{processes.role(pid)} {pid}": {"cpu_ms_page": per_page * seconds, "rss_mb": processes.rss(pid) / 1e6}
        for pid, seconds in used.items()
    }
    servers = {
        name: round(per_page * (seconds - servers_before[name]), 3) for name, seconds in suite.server_cpu().items()
    }
    return {
        "pages": done,
        "seconds": round(wall, 2),
        "pages_per_s": round(done / wall, 1),
        "cpu_ms_page": round(per_page * total, 3),
        "servers_cpu_ms_page": servers,
        "killed": killer.killed,
        "first": first,
        "processes": each,
    }


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
    """SIGKILLs each child of `all` ``times`` times, in a random order, evenly over the crawl: so that there is work in hand."""

    def __init__(self, suite: Suite, times: int, pages: int) -> None:
        self._parent = suite.roots[0].pid
        names = [processes.role(pid) for pid in processes.tree(self._parent)[1:]] if times else []
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
