"""The targets for speed, with the command that measures each: `bench --all-targets` runs them all and prints the table of docs/performance.md.

A command is run once, whatever number of rows it has figures for; each row says where its figure is in the JSON of the command.
"""

import itertools
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspider_lite.bench import ending
from pyspider_lite.bench.effects import EFFECTS
from pyspider_lite.bench.measures import idle
from pyspider_lite.bench.rounds import Figures

_ROUNDS = ("--rounds", "3")
#: pages of a crawl that says nothing of them
_TOTAL = 10_000
#: seconds for a command to end what it has started when it is interrupted
_STOP = 120.0
#: options of `bench`, by a name for them
COMMANDS: dict[str, tuple[str, ...]] = {
    "links": ("--peer", "scrapy", "--peer", "crawlee", *_ROUNDS),
    "doc": ("--parse", "doc", "--peer", "scrapy", *_ROUNDS),
    "cluster": ("--only", "--stack", "redis-mariadb", "--peer", "scrapy-redis", *_ROUNDS),
    "large": ("--total", "3000", "--page-size", "60000", "--peer", "scrapy", *_ROUNDS),
    "scheduler": ("--role", "scheduler", "--total", "50000", *_ROUNDS),
    "fetcher": ("--role", "fetcher", "--total", "20000", *_ROUNDS),
    "processor": ("--role", "processor", "--total", "10000", *_ROUNDS),
    "idle": ("--measure", "idle", "--stack", "redis-mariadb"),
    "latency": ("--measure", "latency", "--stack", "redis-mariadb"),
    "rates": ("--measure", "rates", "--stack", "redis-mariadb"),
    "fetchers": ("--measure", "fetchers", "--stack", "redis-mariadb"),
    "rows": ("--measure", "rows", "--rows", "10000000"),
    "submit": ("--measure", "submit", "--urls", "1000000", "--stack", "redis-mariadb"),
    "projects": ("--measure", "projects", "--rows", "1000000"),
}


class Row(NamedTuple):
    """One line of the table. ``figure`` finds its number in what a command wrote; exactly one of the limits is set."""

    what: str
    command: str = ""
    figure: Callable[[Any], float] = lambda made: 0.0
    at_least: float | None = None
    at_most: float | None = None
    #: for rows without a command
    target: str = ""

    @property
    def limit(self) -> str:
        """The target in words."""
        if self.at_least is not None:
            return f"at least {self.at_least:g}"
        return f"at most {self.at_most:g}" if self.at_most is not None else self.target

    def met(self, value: float) -> bool:
        """Whether the target is reached."""
        return value >= self.at_least if self.at_least is not None else value <= (self.at_most or 0.0)


def _ratio(pair: str) -> Callable[[Any], float]:
    return lambda made: float(made["ratios"][pair]["pages_per_s"][1])


def _median(subject: str, key: str) -> Callable[[Any], float]:
    return lambda made: float(made["summary"][subject][key][1])


def _worst(key: str, choose: Callable[..., float] = max, without: str = "projects") -> Callable[[Any], float]:
    return lambda made: choose(
        numbers[key][1] for name, numbers in made["summary"].items() if key in numbers and without not in name
    )


_CLUSTER = "redis+mariadb"
_PROJECTS = idle.name_of("all", projects=idle.PROJECTS)
_CROWDED = idle.name_of(_CLUSTER, workers=idle.WORKERS)
_ROWS = "10,000,000 open tasks, SQLite or MariaDB, the worse"
_LARGE = "1,000 projects, one with 1,000,000 open tasks"
ROWS = (
    Row("`all`, `response.links`, 10,000 pages of 5 KB: pages/s against Scrapy", "links", _ratio("all / scrapy"), 12),
    Row("the same against crawlee's HttpCrawler", "links", _ratio("all / crawlee"), 4),
    Row("the same: CPU of all our processes, ms a page", "links", _median("all", "cpu_ms_page"), None, 0.9),
    Row("`all`, `response.doc('a').items()`: pages/s against Scrapy", "doc", _ratio("all / scrapy"), 8),
    Row("the same: CPU of all our processes, ms a page", "doc", _median("all", "cpu_ms_page"), None, 1.4),
    Row(
        "Redis and MariaDB: pages/s against scrapy-redis, two processes",
        "cluster",
        _ratio(f"{_CLUSTER} / scrapy-redis"),
        5,
    ),
    Row("the same: CPU of our processes, ms a page", "cluster", _median(_CLUSTER, "cpu_ms_page"), None, 2.0),
    Row("`all`, 3,000 pages of 60 KB: pages/s against Scrapy", "large", _ratio("all / scrapy"), 4),
    Row(
        "scheduler alone, MariaDB, warm cache: pages a second of its CPU",
        "scheduler",
        _median("scheduler mariadb warm", "pages_per_cpu_s"),
        4_000,
    ),
    Row(
        "scheduler alone, SQLite, warm cache: pages a second of its CPU",
        "scheduler",
        _median("scheduler sqlite warm", "pages_per_cpu_s"),
        6_000,
    ),
    Row("fetcher alone, 5 KB: pages/s of one process", "fetcher", _median("fetcher", "pages_per_s"), 3_000),
    Row(
        "processor alone, pyquery: pages/s of one process", "processor", _median("processor doc", "pages_per_s"), 1_000
    ),
    Row("processor alone, `response.links`: pages/s", "processor", _median("processor links", "pages_per_s"), 2_000),
    Row(f"{_ROWS}: seconds until the scheduler is ready", "rows", _worst("whole.ready_s"), None, 5),
    Row("the same: until the first task is given out", "rows", _worst("whole.first_dispatch_s"), None, 5),
    Row("the same: MB of the scheduler", "rows", _worst("whole.rss_mb"), None, 300),
    Row("the same, against 1,000,000: MB", "rows", _worst("compared.rss_mb"), None, 1.1),
    Row("... tasks given out a second", "rows", _worst("compared.dispatches_per_s", min), 0.8),
    Row("... new tasks a second", "rows", _worst("compared.inserts_per_s", min), 0.5),
    Row(
        "one callback that submits 1,000,000 URLs: MB of the largest process",
        "submit",
        _worst("max_peak_mb"),
        None,
        300,
    ),
    Row(
        f"{_LARGE}: longest wait for the first page after Run, s",
        "projects",
        _median("projects all", "first_page_max_s"),
        None,
        2,
    ),
    Row(
        "the same, idle: scheduler, % of a core", "projects", _median("projects all", "idle_scheduler_percent"), None, 3
    ),
    Row("1,000 projects, idle: scheduler, % of a core", "idle", _median(_PROJECTS, "roles_percent.scheduler"), None, 3),
    Row(
        "idle system, with 3 or 100 workers: the process that takes most, % of a core",
        "idle",
        _worst("max_percent"),
        None,
        1,
    ),
    Row(
        "idle, Redis, 100 workers: commands a second",
        "idle",
        _median(_CROWDED, "broker_commands_per_s"),
        None,
        300,
    ),
    Row("newtask to start of fetch, idle: median, ms", "latency", _worst("p50_ms"), None, 30),
    Row("newtask to start of fetch, idle: 99th percentile, ms", "latency", _worst("p99_ms"), None, 200),
    Row("rates of 0.2, 1, 10, 300 a second: farthest off, %", "rates", _worst("off_percent"), None, 5),
    Row(
        "efficiency with 1, 2, 4 fetchers, pages after 100 ms: lowest",
        "fetchers",
        _worst("efficiency", choose=min),
        0.85,
    ),
)


def shortened(words: Sequence[str]) -> list[str]:
    """A tenth of the pages, rows and URLs in one round, for a look at whether all works; of an option that comes twice the last counts. Pure."""
    given = {word: following for word, following in itertools.pairwise(words) if word.startswith("--")}
    measure = f"--measure {given.get('--measure')}"
    sizes = {"--total": _TOTAL} if "--measure" not in given else {}
    sizes |= {name: int(given[name]) for name in ("--total", "--rows", "--urls") if name in given}
    smaller = [word for name, size in sizes.items() for word in (name, str(size // 10))]
    seconds = ["--seconds", "10"] if measure in EFFECTS["seconds"] else []
    return [*words, *smaller, "--rounds", "1", *seconds]


def run(folder: Path, *, quick: bool) -> tuple[list[Figures], dict[str, Any]]:
    """Run all commands and print the table; all runs, and what each command wrote. One that fails costs its rows only."""
    made: dict[str, Any] = {}
    runs: list[Figures] = []
    for name, command in COMMANDS.items():
        words = shortened(command) if quick else command
        file = folder / f"{name}.json"
        print(f"== {name}: scripts/bench {' '.join(words)}", flush=True)
        program = [sys.executable, "-m", "pyspider_lite.bench", *words, "--json", str(file)]
        done = ending.run(program, patience=_STOP)
        if file.exists():
            made[name] = json.loads(file.read_text())
            runs += made[name]["runs"]
        else:
            runs.append({"name": name, "problems": f"bench ended with exit code {done.returncode}"})
    print("\n".join(table(ROWS, made)))
    return runs, {"commands": made}


def table(rows: Sequence[Row], made: Mapping[str, Any]) -> list[str]:
    """In Markdown. Pure."""
    lines = ["| what | target | measured | | command |", "|---|---|---|---|---|"]
    for row in rows:
        value, verdict = "not measured", ""
        if row.command in made:
            try:
                number = row.figure(made[row.command])
                value, verdict = f"{number:.4g}", "met" if row.met(number) else "missed"
            except (KeyError, ValueError):
                value = "failed"
        command = f"`scripts/bench {' '.join(COMMANDS[row.command])}`" if row.command else ""
        lines.append(f"| {row.what} | {row.limit} | {value} | {verdict} | {command} |")
    return lines
