"""The command ``bench`` (`pyspider_lite bench`, `scripts/bench`): options in, figures out. What is measured is in the modules beside this one.

Correctness first: a run in which not every page was stored exactly once, with its own title, ends in exit code 1, whatever its speed.
"""

import json
import os
import platform
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click
import msgspec
from click.core import ParameterSource
from msgspec import Struct

from pyspider_lite import __version__
from pyspider_lite.bench import crawl, crawls, effects, ending, given, parts, peer_file, peers, rounds, site, targets
from pyspider_lite.bench.measures import fetchers, idle, latency, projects, rates, rows, submit
from pyspider_lite.bench.roles import scheduler
from pyspider_lite.bench.roles.subjects import ROLES, subjects
from pyspider_lite.bench.rounds import Figures, Spread
from pyspider_lite.bench.suite import CLUSTERS, STACKS
from pyspider_lite.exit_codes import DONE, INCOMPLETE
from pyspider_lite.models.names import Role

F = TypeVar("F", bound=Callable[..., Any])

MEASURES = ("latency", "rates", "idle", "fetchers", "rows", "submit", "projects")
#: open tasks, unless it is said
_ROWS, _PROJECT_ROWS = 10_000_000, 1_000_000
#: share of the machine that others may take before it is said
_NOISE = 0.05
_NUMBER, _COUNT = click.IntRange(1), click.IntRange(0)
#: with a + as well, as figures show them
_STACKS = [*STACKS, *(plan.name for plan in CLUSTERS)]
_OF_A_CRAWL = (
    click.option("--total", "--pages", default=10_000, show_default=True, type=_NUMBER, help="Pages of the site."),
    click.option("--show", default=site.LINKS, show_default=True, type=click.IntRange(7), help="Links of a page."),
    click.option("--page-size", "--size", default=5_000, show_default=True, type=_NUMBER, help="Bytes of a page."),
    click.option(
        "--site",
        metavar="URL",
        type=given.PageUrl(),
        help="Crawl what is below the folder of this URL, not a generated site.",
    ),
    click.option("--fetcher-num", default=1, show_default=True, type=_NUMBER),
    click.option("--processor-num", "--processors", default=2, show_default=True, type=_NUMBER),
    click.option("--result-worker-num", default=1, show_default=True, type=_NUMBER),
    # of pyspider's command line: it starts processes in any case
    click.option("--run-in", type=click.Choice(["subprocess", "thread"]), hidden=True, expose_value=False),
    click.option(
        "--parse",
        "--handler",
        type=click.Choice(crawl.HANDLERS),
        default="links",
        show_default=True,
        help="links: response.links(); doc: response.doc('a').items().",
    ),
    click.option("--cluster", is_flag=True, help="Each daemon as a command of its own, too, on each stack of servers."),
    click.option("--stack", multiple=True, type=click.Choice(_STACKS), help="As --cluster, this one alone."),
    click.option("--only", is_flag=True, help="Without `all`: the stacks alone."),
    click.option(
        "--peer", multiple=True, type=click.Choice(sorted(peers.PEERS)), help="This crawler as well, in turn."
    ),
    click.option("--floor", is_flag=True, help="A bare loop of pycurl and lxml as well."),
    click.option("--rounds", default=1, show_default=True, type=_NUMBER, help="How often each is run."),
    click.option("--kill", default=0, type=_COUNT, help="Kill each child process of `all` so many times on the way."),
    click.option("--projects", default=0, type=_COUNT, help="Crawl so many projects of ten pages each instead."),
    click.option("--verbose", is_flag=True, help="Show the log of the suite."),
)
_OTHER = (
    click.option(
        "--role",
        multiple=True,
        type=click.Choice([str(role) for role in ROLES]),
        help="This daemon alone instead of a crawl.",
    ),
    click.option(
        "--database",
        multiple=True,
        type=click.Choice(list(scheduler.DATABASES)),
        default=list(scheduler.DATABASES),
        help="Of --role scheduler and --measure rows.  [default: all]",
    ),
    click.option("--measure", multiple=True, type=click.Choice(MEASURES), help="This instead of a crawl."),
    click.option("--seconds", type=given.Finite(1), help="How long each --measure looks."),
    click.option(
        "--rows",
        type=click.IntRange(100),
        help=f"Open tasks of --measure rows [default: {_ROWS:,}] and projects [default: {_PROJECT_ROWS:,}].",
    ),
    click.option("--urls", default=1_000_000, show_default=True, type=_NUMBER, help="That --measure submit submits."),
    click.option("--taskdb-bench", is_flag=True, help="The taskdb alone."),
    click.option("--message-queue-bench", is_flag=True, help="A built-in queue alone."),
    click.option("--all-bench", is_flag=True, help="A crawl, which is the default, beside the other two."),
    click.option(
        "--all-targets", is_flag=True, help="Everything that docs/performance.md has; takes hours, and 12 GB of disk."
    ),
    click.option("--quick", is_flag=True, help="--all-targets with a tenth of the pages, once; takes minutes."),
    click.option(
        "--peer-file",
        metavar="[FOLDER]",
        is_flag=False,
        flag_value="",
        help="Print how another benchmark starts us, as JSON; with a folder, write it there.",
    ),
    click.option("--json", metavar="FILE", type=click.Path(path_type=Path), help="Write all figures to this file."),
    click.option("--keep", metavar="FOLDER", type=given.EmptyFolder(), help="Empty folder to work in; it is kept."),
)


def _options(function: F) -> F:
    for option in reversed((*_OF_A_CRAWL, *_OTHER)):
        function = option(function)
    return function


class Modes(Struct, kw_only=True):
    """What is done instead of a crawl, and where the figures go."""

    role: tuple[str, ...]
    database: tuple[str, ...]
    measure: tuple[str, ...]
    seconds: float | None
    rows: int | None
    urls: int
    taskdb_bench: bool
    message_queue_bench: bool
    all_bench: bool
    all_targets: bool
    quick: bool
    peer_file: str | None
    json: Path | None
    keep: Path | None

    @property
    def apart(self) -> bool:
        """Something else than a crawl is asked for."""
        return bool(self.role or self.measure or self.taskdb_bench or self.message_queue_bench)


@click.command("bench")
@_options
@click.pass_context
def bench_command(context: click.Context, /, **options: Any) -> int:
    """Measure what a page costs: crawl a generated site, check that the results are exactly its pages, print the figures."""
    modes = Modes(**{name: options[name] for name in Modes.__struct_fields__})
    choices = crawls.Choices(**{name: options[name] for name in crawls.Choices.__struct_fields__})
    _refuse_without_effect(context, choices)
    if modes.peer_file is not None:
        peer_file.show(modes.peer_file)
        return DONE
    with ending.in_order(), tempfile.TemporaryDirectory(prefix="pyspider_lite-bench-") as temporary:
        folder = Path(modes.keep or temporary).resolve()
        folder.mkdir(parents=True, exist_ok=True)
        if modes.json:
            given.try_to_write(modes.json)
        more: dict[str, Any] = {}
        if modes.all_targets:
            runs, more = targets.run(folder, quick=modes.quick)
        else:
            runs = _apart(modes, choices, folder) if modes.apart else []
            if modes.all_bench or not modes.apart:
                crawled = crawls.run(choices, folder, show)
                more = {"ratios": _ratios(choices, crawled)}
                runs += crawled
    if modes.json:
        _write(modes.json, options, runs=runs, summary=rounds.summary(runs), **more)
    noise = max((run.get("noise", 0.0) for run in runs), default=0.0)
    if noise > _NOISE:
        click.echo(
            f"other programs took up to {noise:.0%} of the machine: trust the CPU time a page, not the pages a second",
            err=True,
        )
    problems = [f"{run['name']}: {run['problems']}" for run in runs if run["problems"]]
    for problem in problems:
        click.echo(f"WRONG: {problem}", err=True)
    return INCOMPLETE if problems else DONE


def _refuse_without_effect(context: click.Context, choices: crawls.Choices) -> None:
    """Raises click.UsageError for an option that was given, but for 0, which is none, and changes nothing."""
    by_hand = [
        name
        for name, value in context.params.items()
        if value and context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if sentence := effects.without(by_hand, effects.asked_for(context.params, choices.plans)):
        raise click.UsageError(sentence, context)


def _apart(modes: Modes, choices: crawls.Choices, folder: Path) -> list[Figures]:
    """Single daemons, and what is not speed."""
    chosen = parts.subjects(folder, choices.total, taskdb=modes.taskdb_bench, queue=modes.message_queue_bench)
    for name in modes.measure:
        chosen += _measure(name, modes, choices, folder)
    with site.Site(choices.total if modes.role else 1, choices.page_size, count=choices.show) as served:
        for role in modes.role:
            chosen += subjects(Role(role), folder, served, modes.database)
        runs = rounds.play(chosen, choices.rounds, show)
    print("\n".join(rounds.lines(runs)))
    return runs


def _measure(name: str, modes: Modes, choices: crawls.Choices, folder: Path) -> list[rounds.Subject]:
    match name:
        case "rows":
            return rows.subjects(folder, modes.database, modes.rows or _ROWS)
        case "submit":
            return submit.subjects(folder, choices.plans, modes.urls)
        case "projects":
            return projects.subjects(folder, modes.rows or _PROJECT_ROWS, modes.seconds)
    measure = {"latency": latency, "rates": rates, "idle": idle, "fetchers": fetchers}[name]
    chosen: list[rounds.Subject] = measure.subjects(folder, choices.plans, modes.seconds)
    return chosen


def _ratios(choices: crawls.Choices, runs: Sequence[Figures]) -> dict[str, dict[str, Spread]]:
    """Of each suite to each peer; printed together with the medians."""
    names = [] if choices.projects else choices.others
    ratios = {
        f"{plan.name} / {other}": {
            key: found
            for key in ("pages_per_s", "cpu_ms_page")
            if (found := rounds.ratio(runs, plan.name, other, key)) is not None
        }
        for plan in choices.plans
        for other in names
    }
    print("\n".join(rounds.lines(runs)))
    for name, numbers in ratios.items():
        for key, value in numbers.items():
            print(f"{name}, {key.replace('_', ' ')}: {value}")
    return ratios


def _write(file: Path, options: dict[str, Any], **figures: Any) -> None:
    """All of it as JSON, with what one needs to know of the machine."""
    machine = {
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "system": platform.platform(),
        "version": __version__,
        # of all that ran in the last minute, ours included
        "load": os.getloadavg()[0],
    }
    # of what the options hold, str is for paths
    made = {
        "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "machine": machine,
        "options": options,
        **figures,
    }
    file.write_bytes(msgspec.json.format(msgspec.json.encode(made, enc_hook=str), indent=1) + b"\n")


def show(figures: Figures) -> None:
    """One run for people."""
    print(json.dumps({key: value for key, value in figures.items() if key not in ("processes", "curve")}), flush=True)
    for name, values in sorted(figures.get("processes", {}).items()):
        idle = f"  {values['idle_percent']:5.1f} % idle" if "idle_percent" in values else ""
        print(f"    {name:40} {values['cpu_ms_page']:7.3f} ms/page  {values['rss_mb']:5.0f} MB{idle}", flush=True)
