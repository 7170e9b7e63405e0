"""One crawl of a site: until it is complete, what it cost, and whether it is right. `measure` has our suite crawl, `watch` looks at any
crawler, so that the peers are measured in the same way. Called by `rounds`."""

import os
import random
import resource
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

from pyspider_lite.bench import processes
from pyspider_lite.bench.suite import Plan, Suite

_HANDLERS = {
    "links": """
        tree = response.etree
        for url in response.links():
            if url.startswith("ROOT"):
                self.crawl(url, callback=self.page)
        return {"url": response.url, "title": tree.findtext(".//title")}""",
    "doc": """
        for each in response.doc('a[href^="ROOT"]').items():
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
#: seconds without a new page after which a run has failed
_STANDSTILL = 60.0
#: seconds between two points of the curve; a long run has no more than so many points
_POINT, _POINTS = 1.0, 200
_LOOK = 0.05


class Target(Protocol):
    """A site that is crawled: `site.Site`, or `given_site.GivenSite`."""

    @property
    def url(self) -> str:
        """Where the crawl begins."""
        ...

    @property
    def pages(self) -> int:
        """How many it has."""
        ...

    @property
    def began(self) -> float | None:
        """time.monotonic() of the first request; None if it is not known."""
        ...

    @property
    def answered(self) -> int | None:
        """Requests so far; None if they are not known."""
        ...

    def expected(self) -> dict[str, str]:
        """What a complete crawl finds: URL -> title."""
        ...

    def forget(self) -> None:
        """Count anew."""
        ...


class Crawler(Protocol):
    """What crawls: our suite, or a peer."""

    #: it writes its output when it ends, so its crawl counts as over with the last request
    buffered: bool

    @property
    def runs(self) -> bool:
        """Its processes are there."""
        ...

    def pids(self) -> list[int]:
        """All its processes."""
        ...

    def used(self) -> float:
        """Seconds of CPU of all its processes, those that ended included."""
        ...

    def server_cpu(self) -> dict[str, float]:
        """Seconds of CPU that each of its servers has used."""
        ...

    def count(self) -> int:
        """How many results can be read."""
        ...

    def rows(self) -> list[tuple[str, str]]:
        """URL and title of each result."""
        ...


class _Ours(Suite):
    """Our suite, with the project of the benchmark."""

    buffered = False

    def count(self, project: str = _PROJECT) -> int:
        return super().count(project)

    def rows(self, project: str = _PROJECT) -> list[tuple[str, str]]:
        return [(url, value.get("title") or "") for url, value in super().rows(project)]


def script(handler: str, url: str) -> str:
    """The handler of that name for the site that begins at ``url``."""
    body = _HANDLERS[handler].replace("ROOT", url.rpartition("/")[0])
    return _SCRIPT.replace("START", url).replace("BODY", body)


def measure(
    folder: Path,
    target: Target,
    plan: Plan,
    *,
    processors: int,
    handler: str,
    kill: int = 0,
    verbose: bool = False,
    fetchers: int = 1,
    result_workers: int = 1,
) -> dict[str, Any]:
    """Have our suite crawl ``target``; figures, with ``problems`` "" if every page was stored exactly once with its own title."""
    target.forget()
    with _Ours(
        folder, plan, processors=processors, verbose=verbose, fetchers=fetchers, result_workers=result_workers
    ) as suite:
        suite.push(_PROJECT, script(handler, target.url))
        killer = _Killer(suite, kill, target.pages)
        figures = watch(suite, target, killer.look)
        words = suite.last_words()
        suite.stop()
        problems = [check(suite.rows(), target)]
        if not killer.killed:
            problems.append(fetched_twice(target.answered, target.pages))
        said = ", ".join(filter(None, problems))
        figures["problems"] = said and said + words
        return {"name": plan.name, **figures, "killed": killer.killed}


def watch(crawler: Crawler, target: Target, look: Callable[[int], None] = lambda done: None) -> dict[str, Any]:
    """Wait until all pages are stored; the figures of the crawl itself, from the first request on. ``look`` is called with the number of
    pages that were asked for."""
    began = time.monotonic()
    while not _asked(crawler, target) and crawler.runs and time.monotonic() - began < _STANDSTILL:
        time.sleep(0.002)
    first = target.began or time.monotonic()
    meter = _Meter(crawler)
    curve = _Curve(crawler, first)
    done, stored, changed = 0, 0, time.monotonic()
    over = 0.0
    while stored < target.pages and time.monotonic() - changed < _STANDSTILL and crawler.runs:
        time.sleep(_LOOK)
        now = _asked(crawler, target)
        # counting rows costs the database something, so it is done at the end only
        stored_now = crawler.count() if now >= target.pages else stored
        if (now, stored_now) != (done, stored):
            done, stored, changed = now, stored_now, time.monotonic()
            look(done)
        if crawler.buffered and now >= target.pages and not over:
            over = time.monotonic()
        curve.look(done)
    wall = (over or time.monotonic()) - first
    done = crawler.count()
    return {
        "pages": done,
        "seconds": round(wall, 2),
        "pages_per_s": round(done / wall, 1),
        "requests": target.answered,
        **meter.figures(wall, done),
        "curve": curve.points,
    }


def _asked(crawler: Crawler, target: Target) -> int:
    return crawler.count() if target.answered is None else target.answered


def check(rows: list[tuple[str, str]], target: Target) -> str:
    """What is wrong with the results, "" if nothing is."""
    expected = target.expected()
    found = Counter(url for url, _ in rows)
    twice = [url for url, count in found.items() if count > 1]
    # the handlers differ in how they give white space
    wrong = [url for url, title in rows if url in expected and title.split() != expected[url].split()]
    missing = expected.keys() - found.keys()
    problems = {"missing": missing, "twice": twice, "wrong": wrong, "strange": found.keys() - expected.keys()}
    return ", ".join(f"{len(urls)} {name}" for name, urls in problems.items() if urls)


def fetched_twice(requests: int | None, pages: int) -> str:
    """That there were more requests than pages, "" if there were not or nobody knows. Results do not show it: a page has one row, however
    often it is crawled. Nothing but a kill makes it right."""
    return f"{requests - pages} fetched twice" if requests is not None and requests > pages else ""


class _Meter:
    """CPU time from now on."""

    def __init__(self, crawler: Crawler) -> None:
        self._crawler = crawler
        self._each = {pid: processes.used(pid) for pid in crawler.pids()}
        self._used = crawler.used()
        self._servers = crawler.server_cpu()
        self._machine, self._own = processes.machine_used(), _own()

    def figures(self, wall: float, pages: int) -> dict[str, Any]:
        """CPU milliseconds a page of all processes, of each role and of each server, and the memory of each process.
        ``noise``: share of the machine that all others took."""
        crawler = self._crawler
        per_page = 1000 / max(1, pages)
        # the machine first: what is measured goes on meanwhile
        machine, own = processes.machine_used() - self._machine, _own() - self._own
        used = crawler.used()
        servers = {name: seconds - self._servers[name] for name, seconds in crawler.server_cpu().items()}
        roles: Counter[str] = Counter()
        each: dict[str, dict[str, float]] = {}
        for pid in crawler.pids():
            cpu, role = per_page * (processes.used(pid) - self._each.get(pid, 0.0)), processes.role(pid)
            roles[role] += cpu  # type: ignore[assignment]
            each[f"{role} {pid}"] = {"cpu_ms_page": round(cpu, 3), "rss_mb": round(processes.peak(pid) / 1e6, 1)}
        others = machine - own - (used - self._used) - sum(servers.values())
        return {
            "cpu_ms_page": round(per_page * (used - self._used), 3),
            "cpu_ms_page_with_start": round(per_page * used, 3),
            "servers_cpu_ms_page": {name: round(per_page * seconds, 3) for name, seconds in servers.items()},
            "roles": {role: round(cpu, 3) for role, cpu in sorted(roles.items())},
            "rss_mb": round(sum(process["rss_mb"] for process in each.values()), 1),
            "processes": each,
            "noise": round(max(0.0, others) / wall / (os.cpu_count() or 1), 3),
        }


def _own() -> float:
    """Of this process, in which the site is."""
    return sum(resource.getrusage(resource.RUSAGE_SELF)[:2])


class _Curve:
    """Pages and memory over time: seconds, pages so far, MB of all processes together."""

    def __init__(self, crawler: Crawler, first: float) -> None:
        self._crawler = crawler
        self._first = first
        self._every = _POINT
        self.points: list[tuple[float, int, float]] = []

    def look(self, done: int) -> None:
        """Another point, if it is time for one."""
        seconds = time.monotonic() - self._first
        if seconds < (self.points[-1][0] if self.points else 0.0) + self._every:
            return
        memory = sum(map(processes.rss, self._crawler.pids())) / 1e6
        self.points.append((round(seconds, 1), done, round(memory, 1)))
        if len(self.points) > _POINTS:
            self.points, self._every = self.points[1::2], 2 * self._every


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
        """Kill what is due when ``done`` pages were asked for."""
        if self.killed >= len(self._plan) or done < (self.killed + 1) * self._every:
            return
        name = self._plan[self.killed]
        victims = [pid for pid in processes.tree(self._parent)[1:] if processes.role(pid) == name]
        if victims:
            os.kill(random.Random(self.killed).choice(victims), signal.SIGKILL)
            self.killed += 1
