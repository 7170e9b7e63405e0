"""Which crawls `bench` compares: our suites, the peers and the floor on one site, as subjects for `rounds`. Called by `command`."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct

from pyspider_lite.bench import crawl, many, peers, rounds, site
from pyspider_lite.bench.given_site import GivenSite
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.suite import ALL, CLUSTERS, STACKS, Plan

FLOOR = "floor"


class Choices(Struct, kw_only=True):
    """What is crawled, by what; named as on the command line."""

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
    verbose: bool

    @property
    def plans(self) -> Sequence[Plan]:
        """The suites of ours."""
        named = [STACKS[name.replace("+", "-")] for name in self.stack] or (list(CLUSTERS) if self.cluster else [])
        return named if self.only else [ALL, *(plan for plan in named if plan is not ALL)]

    @property
    def others(self) -> list[str]:
        """What they are compared with."""
        return [*self.peer, *([FLOOR] if self.floor else [])]


def run(choices: Choices, folder: Path, show: Callable[[Figures], None]) -> list[Figures]:
    """The figures of all crawls."""
    if choices.projects:
        return rounds.play([Subject("all", lambda number: _many(choices, folder))], 1, show)
    if choices.site:
        return rounds.play(_subjects(choices, folder, GivenSite(choices.site, folder)), choices.rounds, show)
    with site.Site(choices.total, choices.page_size, count=choices.show) as served:
        return rounds.play(_subjects(choices, folder, served), choices.rounds, show)


def _many(choices: Choices, folder: Path) -> Figures:
    with site.Site(many.PAGES, choices.page_size) as served:
        return many.measure(
            folder, served, choices.projects, choices.parse, processors=choices.processor_num, verbose=choices.verbose
        )


def _subjects(choices: Choices, folder: Path, target: crawl.Target) -> list[Subject]:
    subjects = [_ours(choices, folder, target, plan) for plan in choices.plans]
    for name in choices.peer:
        peers.python(name)  # installed before anything is measured
        subjects.append(_peer(folder, target, name))
    if choices.floor:
        subjects.append(Subject(FLOOR, lambda number: _floor(target)))
    return subjects


def _ours(choices: Choices, folder: Path, target: crawl.Target, plan: Plan) -> Subject:
    def measure(number: int) -> Figures:
        return crawl.measure(
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

    return Subject(plan.name, measure)


def _peer(folder: Path, target: crawl.Target, name: str) -> Subject:
    return Subject(name, lambda number: peers.measure(folder / f"{name}-{number}", target, name))


def _floor(target: crawl.Target) -> Figures:
    words = [sys.executable, "-m", "pyspider_lite.bench.floor", target.url]
    figures = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {**figures, "problems": "" if figures["pages"] == target.pages else "not all pages"}
