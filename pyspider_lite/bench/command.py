"""The command ``bench`` (`pyspider_lite bench`, `scripts/bench`): options in, figures out. What is measured is in the modules beside this one.

Correctness first: a run in which not every page was stored exactly once, with its own title, ends in exit code 1, whatever its speed.
"""

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
from msgspec import Struct

from pyspider_lite import __version__
from pyspider_lite.bench import crawl, many, peers, rounds, site
from pyspider_lite.bench.given_site import GivenSite
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import ALL, CLUSTERS, Plan
from pyspider_lite.exit_codes import DONE, INCOMPLETE

_STACKS = {plan.name: plan for plan in CLUSTERS}
#: of pyspider's command line: it starts processes in any case
_RUN_IN = click.option("--run-in", type=click.Choice(["subprocess", "thread"]), hidden=True, expose_value=False)


class Choices(Struct, kw_only=True):
    """The options."""

    total: int
    show: int
    page_size: int
    site: str | None
    fetcher_num: int
    processor_num: int
    result_worker_num: int
    parse: str
    cluster: bool
    stack: tuple[str, ...]
    only: bool
    peer: tuple[str, ...]
    floor: bool
    rounds: int
    kill: int
    projects: int
    json: str | None
    keep: str | None
    verbose: bool

    @property
    def plans(self) -> Sequence[Plan]:
        """The suites of ours that are measured."""
        named = [_STACKS[name] for name in self.stack] or (list(CLUSTERS) if self.cluster else [])
        return named if self.only else [ALL, *named]


@click.command("bench")
@click.option(
    "--total", "--pages", default=10_000, show_default=True, type=click.IntRange(1), help="Pages of the site."
)
@click.option("--show", default=site.LINKS, show_default=True, type=click.IntRange(7), help="Links of a page.")
@click.option(
    "--page-size", "--size", default=5_000, show_default=True, type=click.IntRange(1), help="Bytes of a page."
)
@click.option("--site", metavar="URL", help="Crawl what is below the folder of this URL instead of a generated site.")
@click.option("--fetcher-num", default=1, show_default=True, type=click.IntRange(1))
@click.option("--processor-num", "--processors", default=2, show_default=True, type=click.IntRange(1))
@click.option("--result-worker-num", default=1, show_default=True, type=click.IntRange(1))
@_RUN_IN
@click.option(
    "--parse",
    "--handler",
    type=click.Choice(crawl.HANDLERS),
    default="links",
    show_default=True,
    help="links: response.links(); doc: response.doc('a').items().",
)
@click.option("--cluster", is_flag=True, help="Each daemon as a command of its own, too, on each stack of servers.")
@click.option("--stack", multiple=True, type=click.Choice(sorted(_STACKS)), help="--cluster on this stack alone.")
@click.option("--only", is_flag=True, help="Without `all`: the stacks alone.")
@click.option("--peer", multiple=True, type=click.Choice(sorted(peers.PEERS)), help="This crawler as well, in turn.")
@click.option("--floor", is_flag=True, help="A bare loop of pycurl and lxml as well.")
@click.option("--rounds", default=1, show_default=True, type=click.IntRange(1), help="How often each is run.")
@click.option("--kill", default=0, help="Kill each child process of `all` so many times on the way.")
@click.option("--projects", default=0, help="Crawl so many projects of ten pages each instead.")
@click.option("--json", metavar="FILE", type=click.Path(), help="Write all figures to this file.")
@click.option("--keep", metavar="FOLDER", type=click.Path(), help="Folder to work in; it is kept.")
@click.option("--verbose", is_flag=True, help="Show the log of the suite.")
def bench_command(**given: Any) -> int:
    """Measure what a page costs: crawl a generated site, check that the results are exactly its pages, print the figures."""
    choices = Choices(**given)
    with tempfile.TemporaryDirectory(prefix="pyspider_lite-bench-") as temporary:
        folder = Path(choices.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        runs = _many(choices, folder) if choices.projects else _crawls(choices, folder)
    ours = [plan.name for plan in choices.plans]
    others = [*choices.peer, *(["floor"] if choices.floor else [])]
    if not choices.projects:
        print("\n".join(rounds.lines(runs, ours, others)))
    if choices.json:
        ratios = {
            f"{one} / {peer}": {
                key: rounds.ratio(runs, one, peer, key)._asdict() for key in ("pages_per_s", "cpu_ms_page")
            }
            for one in ours
            for peer in (others if not choices.projects else [])
        }
        write(choices.json, given, runs=runs, ratios=ratios)
    return verdict(runs)


def verdict(runs: Sequence[Figures]) -> int:
    """The exit code; says what is wrong."""
    problems = [f"{run['name']}: {run['problems']}" for run in runs if run["problems"]]
    for problem in problems:
        click.echo(f"not complete: {problem}", err=True)
    return INCOMPLETE if problems else DONE


def write(file: str, options: dict[str, Any], **figures: Any) -> None:
    """All of it as JSON, with what one needs to know of the machine."""
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "version": __version__,
    }
    Path(file).write_text(json.dumps({"machine": machine, "options": options, **figures}, indent=1, default=str) + "\n")


def _many(choices: Choices, folder: Path) -> list[Figures]:
    with site.Site(many.PAGES, choices.page_size) as served:
        figures = many.measure(
            folder, served, choices.projects, choices.parse, processors=choices.processor_num, verbose=choices.verbose
        )
    show(figures)
    return [figures]


def _crawls(choices: Choices, folder: Path) -> list[Figures]:
    if choices.site:
        return rounds.play(_subjects(choices, folder, GivenSite(choices.site, folder)), choices.rounds, show)
    with site.Site(choices.total, choices.page_size, links=choices.show) as served:
        return rounds.play(_subjects(choices, folder, served), choices.rounds, show)


def _subjects(choices: Choices, folder: Path, target: crawl.Target) -> list[Subject]:
    subjects = [Subject(plan.name, _ours(choices, folder, target, plan)) for plan in choices.plans]
    for name in choices.peer:
        peers.python(name)  # installed before anything is measured
        subjects.append(Subject(name, _peer(folder, target, name)))
    if choices.floor:
        subjects.append(Subject("floor", lambda number: _floor(target)))
    return subjects


def _ours(choices: Choices, folder: Path, target: crawl.Target, plan: Plan) -> Any:
    return lambda number: crawl.measure(
        folder / f"{plan.name}-{number}",
        target,
        plan,
        fetchers=choices.fetcher_num,
        processors=choices.processor_num,
        result_workers=choices.result_worker_num,
        handler=choices.parse,
        kill=choices.kill if plan is ALL else 0,
        verbose=choices.verbose,
    )


def _peer(folder: Path, target: crawl.Target, name: str) -> Any:
    return lambda number: peers.measure(folder / f"{name}-{number}", target, name)


def _floor(target: crawl.Target) -> Figures:
    words = [sys.executable, "-m", "pyspider_lite.bench.floor", target.url]
    figures = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {**figures, "problems": "" if figures["pages"] == target.pages else "not all pages"}


def show(figures: Figures) -> None:
    """One run for people."""
    left_out = ("processes", "curve")
    print(json.dumps({key: value for key, value in figures.items() if key not in left_out}))
    for name, values in sorted(figures.get("processes", {}).items()):
        idle = f"  {values['idle_percent']:5.1f} % idle" if "idle_percent" in values else ""
        print(f"    {name:40} {values['cpu_ms_page']:7.3f} ms/page  {values['rss_mb']:5.0f} MB{idle}", flush=True)
