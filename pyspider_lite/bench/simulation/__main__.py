"""The command `scripts/simulate`."""

import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

import click
import msgspec

from pyspider_lite.bench import ending, given, programs
from pyspider_lite.bench.roles.scheduler import DATABASES
from pyspider_lite.bench.simulation import tally
from pyspider_lite.bench.simulation.counted import Run, simulate
from pyspider_lite.bench.simulation.crowd import Cluster
from pyspider_lite.exit_codes import DONE, INCOMPLETE

_NUMBER = click.IntRange(1)


@click.command("simulate")
@click.option("--fetchers", default=100, show_default=True, type=_NUMBER)
@click.option("--processors", default=100, show_default=True, type=_NUMBER)
@click.option("--result-workers", default=10, show_default=True, type=_NUMBER)
@click.option("--poolsize", default=100, show_default=True, type=_NUMBER, help="Of each fetcher.")
@click.option(
    "--page-seconds",
    default=(0.1, 1.0),
    show_default=True,
    type=(given.Finite(0), given.Finite(0)),
    help="At least and at most.",
)
@click.option("--rate", default=10_000.0, show_default=True, type=given.Finite(1), help="Pages a second.")
@click.option("--pages", default=30_000, show_default=True, type=_NUMBER)
@click.option("--projects", default=4, show_default=True, type=_NUMBER)
@click.option(
    "--speed",
    default=1.0,
    show_default=True,
    type=given.Finite(0.01, endless=True),
    help="Of the scheduler's core, in parts of this machine's; inf: no step takes any time.",
)
@click.option("--deaths", default=0.0, show_default=True, type=given.Finite(0, 1), help="Share of the workers.")
@click.option("--outage", default=0.0, show_default=True, type=given.Finite(0), help="Of the broker, seconds.")
@click.option("--database", default="sqlite", show_default=True, type=click.Choice(list(DATABASES)))
@click.option("--json", "file", metavar="FILE", type=click.Path(path_type=Path), help="Write the figures to this file.")
def main(
    fetchers: int,
    processors: int,
    result_workers: int,
    poolsize: int,
    page_seconds: tuple[float, float],
    rate: float,
    pages: int,
    projects: int,
    speed: float,
    deaths: float,
    outage: float,
    database: str,
    file: Path | None,
) -> int:
    """Run the real scheduler with played workers and a counted clock; exit 1 if not every page was done exactly once."""
    if page_seconds[0] > page_seconds[1]:
        raise click.BadParameter("the first must not be above the second.", param_hint="'--page-seconds'")
    if file is not None:
        given.try_to_write(file)
    cluster = Cluster(
        fetchers=fetchers,
        processors=processors,
        result_workers=result_workers,
        poolsize=poolsize,
        page_seconds=page_seconds,
    )
    run = Run(cluster=cluster, rate=rate, pages=pages, projects=projects, speed=speed, deaths=deaths, outage=outage)
    with ending.in_order(), ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="pyspider_lite-simulate-")))
        urls = {}
        if (kind := DATABASES[database]) is not None:
            server = kind()
            stack.enter_context(server)
            urls = {name: server.url(name) for name in ("taskdb", "projectdb", "resultdb")}
        figures = simulate(folder, run, urls)
    print("\n".join(tally.lines(figures)))
    if file is not None:
        file.write_bytes(msgspec.json.format(msgspec.json.encode(figures), indent=1) + b"\n")
    if figures["problems"]:
        click.echo(f"WRONG: {figures['problems']}", err=True)
    else:
        print("every page was done exactly once")
    return INCOMPLETE if figures["problems"] else DONE


if __name__ == "__main__":
    sys.exit(programs.run(main, "scripts/simulate"))
