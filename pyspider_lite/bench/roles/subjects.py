"""What `bench --role` measures, as subjects for `rounds`."""

from collections.abc import Sequence
from pathlib import Path

from pyspider_lite.bench import crawl, site
from pyspider_lite.bench.roles import fetcher, processor, scheduler
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.models.names import Role

ROLES = (Role.SCHEDULER, Role.FETCHER, Role.PROCESSOR)


def subjects(role: Role, folder: Path, served: site.Site, databases: Sequence[str]) -> list[Subject]:
    """Of one role: a scheduler on each database with a warm and a cold cache, a processor with each handler."""
    if role == Role.FETCHER:
        return [Subject("fetcher", lambda number: fetcher.measure(folder / f"fetcher-{number}", served))]
    if role == Role.PROCESSOR:
        return [_processor(folder, served, handler) for handler in crawl.HANDLERS]
    return [_scheduler(folder, served.pages, name, cold) for name in databases for cold in (False, True)]


def _processor(folder: Path, served: site.Site, handler: str) -> Subject:
    def measure(number: int) -> Figures:
        return processor.measure(folder / f"processor-{handler}-{number}", served, handler)

    return Subject(f"processor {handler}", measure)


def _scheduler(folder: Path, pages: int, database: str, cold: bool) -> Subject:
    cache = "cold" if cold else "warm"

    def measure(number: int) -> Figures:
        return scheduler.measure(folder / f"scheduler-{database}-{cache}-{number}", pages, database, cold=cold)

    return Subject(f"scheduler {database} {cache}", measure)
