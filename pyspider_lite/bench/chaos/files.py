"""The files that a run of chaos leaves: read, and held against each other. Pure but for `load`. Called by `check`."""

import json
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from pyspider_lite.bench.chaos import pages
from pyspider_lite.bench.chaos.pages import Request

Row = dict[str, Any]
_Line = TypeVar("_Line")
#: as many are named of what is wrong
_SHOWN = 5
#: targets of harms that are no process of the suite
SERVERS = ("broker", "database")
#: seconds that a harm may last longer than planned: a busy server takes long to end and to start
_SLOW = 60.0
#: URLs of control work that leaves a row in the table of tasks
_CONTROLS = ("data:,on_start", "data:,on_finished")


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
    yield from _lengths(files.events)
    yield from _processes(files.events)
    yield from _tasks(files.tasks)
    yield from _results(files)


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


def _lengths(events: Sequence[Row]) -> Iterator[str]:
    """Harms to servers are over when they are done, also those that last no longer; of harms to processes only those that last are. One
    that is told to be longer than it was would allow for more repetitions."""
    begun = {event["harm"]: event for event in events if event["event"] == "harm"}
    failed = {event["harm"] for event in events if event["event"] == "error"}
    took = {event["harm"]: event["time"] - begun[event["harm"]]["time"] for event in events if _is_over(event, begun)}
    lasting = {key for key, harm in begun.items() if harm["seconds"] or harm["role"] in SERVERS}
    yield from some("of harms over that were over at once", sorted(took.keys() - lasting))
    yield from some("of harms that last and are never over", sorted(lasting - took.keys() - failed))
    odd = [key for key, seconds in took.items() if not 0 <= seconds <= begun[key]["seconds"] + _SLOW]
    yield from some("of harms over that lasted otherwise", odd)


def _is_over(event: Row, begun: Mapping[Any, Row]) -> bool:
    return event["event"] == "over" and event["harm"] in begun


def _processes(events: Sequence[Row]) -> Iterator[str]:
    """Whatever was started has ended or is left over; and whose end was wanted was ended by a harm, or at the end of all."""
    stopped = min((event["time"] for event in events if event["event"] == "stop"), default=math.inf)
    ended = {event["pid"] for event in events if event["event"] == "harm" and event["kind"] in ("kill", "term")}
    unharmed = [
        f"{event['role']} (pid {event['pid']})"
        for event in events
        if event["event"] == "exit" and event["wanted"] and event["pid"] not in ended and event["time"] < stopped
    ]
    yield from some("of processes whose end was wanted and done by nobody", unharmed)
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
    yield from some("of tasks of no page", [task["url"] for task in rows if not _is_ours(task["url"])])
    yield from some("of tasks with more than one row", _doubled(task["taskid"] for task in rows))
    beside = len(tasks) - len(rows)
    if beside > 1:
        yield f"tasks.jsonl has {beside} lines that are no task: one is wanted, with the counts"


def _is_ours(url: str) -> bool:
    return number(url) is not None or url in _CONTROLS


def _results(files: Files) -> Iterator[str]:
    tasks = {(task["taskid"], number(task["url"])) for task in files.tasks if "taskid" in task}
    strange = [row["url"] for row in files.results if (row["taskid"], number(row["url"])) not in tasks]
    yield from some("of results whose task does not exist", strange)
    yield from some("of results of no page", [row["url"] for row in files.results if number(row["url"]) is None])
    begin = min((event["time"] for event in files.events if event["event"] == "begin"), default=-math.inf)
    early = [row["url"] for row in files.results if any(moment < begin for moment in row["writes"])]
    yield from some("of results written before the run began", early)


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
