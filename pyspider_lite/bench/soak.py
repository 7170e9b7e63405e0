"""Whether anything grows: ``python -m pyspider_lite.bench.soak`` (`scripts/soak`) crawls the same pages again and again, without end.

What there is to do, the tasks, links and results stay the same, so whatever grows after the warm-up is a leak. Looks at the memory and
the open files of each process, and at the broker: its memory, its keys, the messages that wait. Prints a table.
"""

import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import click

from pyspider_lite import message_queue
from pyspider_lite.bench import ending, given, processes, programs, site
from pyspider_lite.bench.servers.rabbitmq import RabbitMq
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.suite import STACKS, Plan, Suite
from pyspider_lite.errors import QueueError
from pyspider_lite.models.names import QueueName

#: growth above this is a leak
LIMIT = 0.05
#: what may come and go besides, in the unit of each kind: a page more of memory, a file that is open at the moment
_SLACK = {"RSS, MB": 1.0, "files": 3.0, "memory, MB": 1.0, "keys": 3.0, "messages": 50.0}
#: seconds of warm-up at most; of shorter runs it is a third
_WARM_UP = 600.0
#: two medians are compared, over this part of the time after the warm-up, and over this many seconds at most
_PART, _WINDOW = 0.25, 120.0
_INTERVAL = 1.0
#: seconds without a request after which the crawl stands still
_STANDSTILL = 20.0
_PROJECT = "soak"
#: seconds after which a page is crawled again
_AGE = 10
SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.follow("START")

    def page(self, response):
        for url in response.links():
            self.follow(url)
        return {{"url": response.url, "title": response.doc("title").text()}}

    def follow(self, url):
        self.crawl(url, callback=self.page, age={age}, auto_recrawl=True)
"""


class Sample(NamedTuple):
    """A look at everything: what, and which kind of number -> the number."""

    seconds: float
    values: dict[tuple[str, str], float]


class Growth(NamedTuple):
    """One row of the table: values at the beginning and at the end of the time after the warm-up, and the highest one there. They are medians;
    of open files the lowest ones, as connections are kept open for a while after each burst."""

    what: str
    kind: str
    first: float
    last: float
    peak: float

    @property
    def too_much(self) -> bool:
        """It is a leak."""
        return self.last - self.first > max(LIMIT * self.first, _SLACK[self.kind])


class Soaked(NamedTuple):
    """What came of a run; ``problems`` is empty if all is well."""

    rows: list[Growth]
    problems: list[str]
    pages_per_s: float


def growths(samples: Sequence[Sample], warm_up: float) -> list[Growth]:
    """Of all that was there from the warm-up to the end. Pure."""
    after = [sample for sample in samples if sample.seconds >= warm_up]
    if len(after) < 2:
        return []
    window = min(_WINDOW, _PART * (after[-1].seconds - after[0].seconds))
    begin = [sample.values for sample in after if sample.seconds <= after[0].seconds + window]
    end = [sample.values for sample in after if sample.seconds >= after[-1].seconds - window]
    rows = []
    for what, kind in after[0].values:
        seen = [sample.values.get((what, kind)) for sample in after]
        known = [value for value in seen if value is not None]
        if len(known) == len(seen):
            middle = min if kind == "files" else statistics.median
            first, last = (middle([values[what, kind] for values in part]) for part in (begin, end))
            rows.append(Growth(what, kind, first, last, max(known)))
    return sorted(rows)


def table(rows: Sequence[Growth]) -> list[str]:
    """In Markdown."""
    lines = ["| what | | after the warm-up | at the end | growth | highest |", "|---|---|---|---|---|---|"]
    for row in rows:
        share = f"{100 * (row.last / row.first - 1):+.1f} %" if row.first else "-"
        numbers = " | ".join((f"{row.first:.1f}", f"{row.last:.1f}", share, f"{row.peak:.1f}"))
        lines.append(f"| {row.what} | {row.kind} | {numbers} |{' too much' if row.too_much else ''}")
    return lines


def soak(folder: Path, plan: Plan, *, seconds: float, rate: float, processors: int = 2, script: str = SCRIPT) -> Soaked:
    """Crawl ``rate`` pages a second for so long and look each second."""
    warm_up = min(_WARM_UP, seconds / 3)
    with (
        site.Site(max(10, round(rate * _AGE))) as served,
        _Suite(folder, plan, processors=processors, verbose=False) as suite,
    ):
        file = folder / "soak.py"
        file.write_text(script.format(age=_AGE).replace("START", served.url))
        suite.command("project", "push", str(file), "--name", _PROJECT, "--rate", f"{rate:g}")
        suite.command("project", "run", _PROJECT)
        samples = list(_watch(suite, served, seconds))
        problems = [] if suite.runs else [f"a daemon ended by itself{suite.last_words()}"]
        asked = served.requests.total()
    if not problems and samples[-1].seconds < seconds - _STANDSTILL / 2:
        problems.append(
            f"nothing was asked for any more for {_STANDSTILL:g} s, {samples[-1].seconds:.0f} s after the start"
        )
    rows = growths(samples, warm_up)
    problems += [f"{row.what}: {row.kind} grew from {row.first:.1f} to {row.last:.1f}" for row in rows if row.too_much]
    return Soaked(rows, problems, asked / samples[-1].seconds)


def _watch(suite: "_Suite", served: site.Site, seconds: float) -> Iterator[Sample]:
    """Until the time is over, or the crawl stands still, or a daemon ended."""
    began = changed = time.monotonic()
    asked = 0
    while suite.runs:
        now = time.monotonic()
        yield Sample(now - began, suite.look())
        if served.requests.total() != asked:
            asked, changed = served.requests.total(), now
        if now - began >= seconds or now - changed > _STANDSTILL:
            return
        time.sleep(_INTERVAL)


class _Suite(Suite):
    """Looks at its processes and its broker, and says itself who has ended."""

    may_end = True

    @cached_property
    def _queues(self) -> list[Any]:
        url, prefix = self.settings.queue_url, self.settings.queue_prefix
        queues = [message_queue.connect(url, name, prefix=prefix) for name in QueueName]
        for queue in queues:
            self._stack.enter_context(contextlib.closing(queue))
        return queues

    def look(self) -> dict[tuple[str, str], float]:
        """What there is now; what does not answer is left out."""
        found: dict[tuple[str, str], float] = {}
        for pid in self.pids():
            what = f"{processes.role(pid)} {pid}"
            with contextlib.suppress(OSError):
                found[what, "files"] = processes.files(pid)
                found[what, "RSS, MB"] = processes.rss(pid) / 1e6
        with contextlib.suppress(QueueError):
            found["broker", "messages"] = sum(queue.qsize() for queue in self._queues)
        for server in self.servers:
            if isinstance(server, Redis):
                with server.client() as client:
                    found["broker", "memory, MB"] = client.info("memory")["used_memory"] / 1e6
                    found["broker", "keys"] = client.dbsize()
            elif isinstance(server, RabbitMq) and server.process is not None:
                found["broker", "memory, MB"] = sum(map(processes.rss, processes.tree(server.process.pid))) / 1e6
        return found


@click.command()
@click.option("--minutes", default=5.0, show_default=True, type=given.Finite(0.2))
@click.option("--stack", default="builtin-sqlite", show_default=True, type=click.Choice(sorted(STACKS)))
@click.option("--rate", default=50.0, show_default=True, type=given.Finite(1), help="Pages a second.")
@click.option("--processors", default=2, show_default=True, type=click.IntRange(1))
@click.option("--keep", type=given.EmptyFolder(), help="Empty folder to work in; it is kept.")
def main(minutes: float, stack: str, rate: float, processors: int, keep: Path | None) -> None:
    """Crawl the same pages again and again and print what grew; exit 1 if something did by more than 5 % after the warm-up."""
    with ending.in_order(), tempfile.TemporaryDirectory(prefix="pyspider_lite-soak-") as temporary:
        folder = (keep or Path(temporary)).resolve()
        soaked = soak(folder, STACKS[stack], seconds=minutes * 60, rate=rate, processors=processors)
    print("\n".join(table(soaked.rows)))
    print(f"{soaked.pages_per_s:.1f} pages a second, {minutes:g} minutes, {stack}")
    for problem in soaked.problems:
        print(f"WRONG: {problem}")
    if soaked.problems:
        sys.exit(1)
    print("nothing grew by more than 5 %")


if __name__ == "__main__":
    sys.exit(programs.run(main, "scripts/soak"))
