"""Crawls a generated site and says what it cost: ``python -m pyspider_lite.bench`` (`scripts/bench`).

Completeness is checked first: every page of the site exactly once in the resultdb, with its own title; a run that is not complete
fails, whatever its speed.
"""

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import click

from pyspider_lite.bench import crawl, many, site
from pyspider_lite.bench.suite import ALL, CLUSTERS


@click.command()
@click.option("--pages", default=10_000, show_default=True)
@click.option("--size", default=5_000, show_default=True, help="Bytes of a page.")
@click.option("--processors", default=2, show_default=True)
@click.option("--handler", type=click.Choice(crawl.HANDLERS), default="links", show_default=True)
@click.option("--kill", default=0, help="Kill each child process of `all` so many times on the way.")
@click.option("--projects", default=0, help="Crawl so many projects of ten pages each instead.")
@click.option(
    "--cluster",
    is_flag=True,
    help="After `all`: each daemon as a command of its own, on Redis and MariaDB, then on RabbitMQ and PostgreSQL.",
)
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
    cluster: bool,
    floor: bool,
    json_file: str | None,
    keep: str | None,
    verbose: bool,
) -> None:
    """Crawl a generated site with `all`; exit 1 if the results are not exactly its pages."""
    runs: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary, site.Site(many.PAGES if projects else pages, size) as served:
        folder = Path(keep or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        if projects:
            runs.append(many.measure(folder, served, projects, handler, processors=processors, verbose=verbose))
            _show(runs[-1])
        for plan in () if projects else (ALL, *(CLUSTERS if cluster else ())):
            killed = kill if plan is ALL else 0
            figures = crawl.measure(
                folder / plan.name,
                served,
                plan,
                processors=processors,
                handler=handler,
                kill=killed,
                verbose=verbose,
            )
            runs.append(figures)
            _show(figures)
        if floor:
            runs.append(_floor(served))
            _show(runs[-1])
    if json_file:
        Path(json_file).write_text(json.dumps(runs, indent=1))
    if problems := "; ".join(run["problems"] for run in runs if run["problems"]):
        sys.exit(f"not complete: {problems}")


def _floor(served: site.Site) -> dict[str, Any]:
    """The figures of the floor on the same site, in the same run."""
    words = [sys.executable, "-m", "pyspider_lite.bench.floor", served.url]
    figures = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
    return {"backends": "floor", **figures, "problems": "", "processes": {}}


def _show(figures: dict[str, Any]) -> None:
    print(json.dumps({key: value for key, value in figures.items() if key != "processes"}))
    for name, values in sorted(figures["processes"].items()):
        idle = f"  {values['idle_percent']:5.1f} % idle" if "idle_percent" in values else ""
        print(f"  {name:45} {values['cpu_ms_page']:7.3f} ms/page  {values['rss_mb']:5.0f} MB{idle}", flush=True)


if __name__ == "__main__":
    main()
