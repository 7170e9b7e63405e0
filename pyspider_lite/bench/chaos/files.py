"""The files that a run of chaos leaves: read, and held against each other. Pure but for `load`. Called by `check`."""

import json
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspider_lite.bench.chaos import pages
from pyspider_lite.bench.chaos.pages import Request

Row = dict[str, Any]
_Line = TypeVar("_Line")
#: as many are named of what is wrong
_SHOWN = 5


class Files(NamedTuple):
    """What a run left."""

    #: harms.jsonl
    events: list[Row]
    #: access.log
    requests: list[Request]
    #: results.jsonl
    results: list[Row]
    #: tasks.jsonl
    tasks: list[Row]


def load(folder: Path) -> Files:
    """Raises OSError or ValueError, which names the line, for files that are missing or cannot be read."""
    return Files(
        _lines(folder / "harms.jsonl", _row),
        _lines(folder / "access.log", pages.parse),
        _lines(folder / "results.jsonl", _row),
        _lines(folder / "tasks.jsonl", _row),
    )


def _lines(file: Path, parse: Callable[[str], _Line]) -> list[_Line]:
    found = []
    for number, line in enumerate(file.read_text().splitlines(), 1):
        try:
            found.append(parse(line))
        except ValueError as error:
            raise ValueError(f"{file.name}, line {number}: {error}") from error
    return found


def _row(line: str) -> Row:
    row = json.loads(line)
    if not isinstance(row, dict):
        raise ValueError("it is no JSON object")
    return row


def contradictions(files: Files) -> Iterator[str]:
    """What cannot be so in files of one run, whatever the counts say: it would hide what was lost or doubled."""
    yield from _events(files.events)
    yield from _processes(files.events)
    yield from _tasks(files.tasks)
    tasks = {(task["taskid"], number(task["url"])) for task in files.tasks if "taskid" in task}
    strange = [row["url"] for row in files.results if (row["taskid"], number(row["url"])) not in tasks]
    yield from some("of results whose task does not exist", strange)


def _events(events: Sequence[Row]) -> Iterator[str]:
    """A harm that is told twice would allow for twice as many repetitions."""
    of = {name: [event for event in events if event["event"] == name] for name in ("begin", "end", "harm", "over")}
    for name in ("begin", "end"):
        if len(of[name]) > 1:
            yield f"harms.jsonl is of more than one run: it has {len(of[name])} lines of event {name}"
    harms = [event["harm"] for event in of["harm"]]
    overs = [event["harm"] for event in of["over"]]
    yield from some("of harms told more than once", _doubled(harms))
    yield from some("of harms over more than once", _doubled(overs))
    yield from some("of harms over that were not begun", sorted(set(overs) - set(harms)))


def _processes(events: Sequence[Row]) -> Iterator[str]:
    """Whatever was started has ended or is left over."""
    of = {name: [event for event in events if event["event"] == name] for name in ("start", "exit", "end")}
    running = Counter((event["role"], event["pid"]) for event in of["start"])
    running -= Counter((event["role"], event["pid"]) for event in of["exit"])
    left = {process["pid"] for end in of["end"] for process in end["left"]}
    named = [f"{role} (pid {pid})" for role, pid in running if pid not in left]
    yield from some("of processes started that neither ended nor are left over", named)


def _tasks(tasks: Sequence[Row]) -> Iterator[str]:
    rows = [task for task in tasks if "taskid" in task]
    numbers = [page for task in rows if (page := number(task["url"])) is not None]
    yield from some("with more than one task", _doubled(numbers))
    yield from some("of tasks with more than one row", _doubled(task["taskid"] for task in rows))
    beside = len(tasks) - len(rows)
    if beside > 1:
        yield f"tasks.jsonl has {beside} lines that are no task: one is wanted, with the counts"


def _doubled(found: Iterable[Hashable]) -> list[Hashable]:
    return [one for one, count in Counter(found).items() if count > 1]


def number(url: str) -> int | None:
    """Of the page at a URL or path; None for what is no page."""
    name = url.rpartition("/")[2].removesuffix(".html")
    return int(name) if name.isdecimal() else None


def some(what: str, found: Sequence[object]) -> Iterator[str]:
    """One sentence for any number of them, none for none."""
    if found:
        named = ", ".join(str(one) for one in found[:_SHOWN])
        yield f"{len(found)} {what}: {named}{', ...' if len(found) > _SHOWN else ''}"
