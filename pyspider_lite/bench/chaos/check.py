"""Judges a run of chaos from the files that it left, and from nothing else. Pure.

What may be repeated is what was in hand: a page may be asked for, or its result be written, once more for each harm before that at which
the page was in hand. Called by the command line and by tests.
"""

import itertools
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from pyspider_lite.bench.chaos import harms, pages
from pyspider_lite.bench.chaos.files import SERVERS, Files, Row, contradictions, number, some

#: seconds that it takes to look what is in hand
_LOOK = 1.0
#: seconds in which what was given out is asked for, or a process drains
_ON_ITS_WAY = 10.0


class Verdict(NamedTuple):
    """All is well if ``problems`` and ``shortfalls`` are empty; ``figures`` are for people, in order."""

    #: what was lost, doubled or left behind
    problems: list[str]
    #: why the run proves too little, although nothing need be wrong
    shortfalls: list[str]
    figures: dict[str, str]


def judge(files: Files) -> Verdict:
    """What is wrong with a run, and how it went."""
    run = _Run(files)
    problems = [
        *run.unfinished(),
        *run.not_requested(),
        *run.wrong_results(),
        *run.open_tasks(),
        *run.wrong_counts(),
        *run.repeated_for_nothing(),
        *run.too_many_requests(),
        *run.processes(),
        *contradictions(files),
    ]
    return Verdict(problems, list(run.harmless()), run.figures())


class _Run:
    def __init__(self, files: Files) -> None:
        self._files = files
        first = files.events[0] if files.events else {}
        self._begin: Row = first if first.get("event") == "begin" else {}
        self._pages = range(int(self._begin.get("pages", 0)))
        self._harms = [event for event in files.events if event["event"] == "harm"]
        self._in_hand = _in_hand(files)
        self._asked: dict[str, list[float]] = {}
        for request in files.requests:
            self._asked.setdefault(request.path, []).append(request.time)
        self._requests = {page: sorted(self._asked.get(pages.path_of(page), [])) for page in self._pages}
        self._rows = [task for task in files.tasks if "taskid" in task]
        self._beside: Row = next((task for task in files.tasks if "counts" in task), {})
        self._written: dict[int, list[float]] = {}
        for page, row in self._results():
            self._written.setdefault(page, []).extend(row["writes"])

    def _results(self) -> Iterator[tuple[int, Row]]:
        for row in self._files.results:
            page = number(row["url"])
            if page is not None:
                yield page, row

    def _of(self, event: str) -> list[Row]:
        return [found for found in self._files.events if found["event"] == event]

    # --- what may be wrong ----------------------------------------------------------------------------------------------

    def unfinished(self) -> Iterator[str]:
        if not self._begin or not self._of("end"):
            yield "the run was not finished: harms.jsonl has no beginning or no end"
        for error in self._of("error"):
            yield f"harm {error['harm']} could not be done: {error['error']}"

    def harmless(self) -> Iterator[str]:
        kills = [harm for harm in self._harms if harm["signal"] == "SIGKILL"]
        busy = [harm for harm in kills if harm["in_hand"]]
        minutes = float(self._begin.get("minutes", 0))
        for found, wanted, what in (
            (kills, harms.KILLS * minutes, "SIGKILLs"),
            (busy, harms.IN_HAND * minutes, "SIGKILLs while work was in hand"),
        ):
            if len(found) < int(wanted):
                yield f"only {len(found)} {what} in {minutes:g} minutes, {int(wanted)} are wanted"

    def not_requested(self) -> Iterator[str]:
        yield from some("never asked for", [page for page in self._pages if pages.path_of(page) not in self._asked])
        known = {pages.path_of(page) for page in self._pages}
        yield from some("asked for though no page links to it", sorted(self._asked.keys() - known))

    def wrong_results(self) -> Iterator[str]:
        found = Counter(page for page, _ in self._results())
        yield from some("without a result", self.lost)
        yield from some("with a result though no page links to it", sorted(found.keys() - set(self._pages)))
        yield from some("with more than one result", [page for page, count in found.items() if count > 1])
        yield from some("with another page's result", [page for page, row in self._results() if not _right(page, row)])
        yield from some("with a result that nobody wrote", [page for page, row in self._results() if not row["writes"]])

    @property
    def lost(self) -> list[int]:
        found = {page for page, _ in self._results()}
        return [page for page in self._pages if page not in found]

    def open_tasks(self) -> Iterator[str]:
        for status in sorted({task["status"] for task in self._rows} - {"success"}):
            yield from some(f"of tasks {status}", [task["url"] for task in self._rows if task["status"] == status])
        known = {number(task["url"]) for task in self._rows}
        yield from some("without a task", [page for page in self._pages if page not in known])
        yield from some("with a task though no page links to it", sorted(known - {None, *self._pages}, key=str))
        if self._beside:
            yield from some("of control work left", self._beside["controls"])
            yield from some("of dead letters", self._beside["dead_letters"])

    def wrong_counts(self) -> Iterator[str]:
        rows = Counter(str(task["status"]) for task in self._rows)
        if not self._beside:
            yield "tasks.jsonl has no counts"
            return
        counts: Counter[str] = Counter(self._beside["counts"])
        for status in sorted(counts.keys() | rows.keys()):
            if (count := counts[status]) != rows[status]:
                yield f"{count} tasks are counted as {status}, there are {rows[status]} rows"

    def repeated_for_nothing(self) -> Iterator[str]:
        for what, found in (("asked for", self._requests), ("their result written", self._written)):
            unexplained = [page for page, times in found.items() if self._too_often(page, sorted(times))]
            yield from some(f"{what} more often than they were in hand at harms", unexplained)

    def _too_often(self, page: int, times: list[float]) -> bool:
        """Each harm at which a page was in hand is good for one repetition after it."""
        moments = self._in_hand.get(page, [])
        return any(bisect_right(moments, moment) < earlier for earlier, moment in enumerate(times))

    @property
    def extra_requests(self) -> int:
        return sum(max(0, len(times) - 1) for times in self._requests.values())

    def too_many_requests(self) -> Iterator[str]:
        in_hand = sum(int(harm["in_hand"]) for harm in self._harms)
        if self.extra_requests > in_hand:
            yield f"{self.extra_requests} extra requests, but only {in_hand} were in hand at the harms"

    def processes(self) -> Iterator[str]:
        for exit in self._of("exit"):
            if not exit["wanted"]:
                yield f"{exit['role']} (pid {exit['pid']}) ended by itself, exit code {exit['code']}"
        for end in self._of("end"):
            yield from some("of processes left over", [f"{left['pid']} {left['command']}" for left in end["left"]])

    # --- how it went ----------------------------------------------------------------------------------------------------

    def figures(self) -> dict[str, str]:
        kinds = Counter(harm["kind"] for harm in self._harms)
        kills = [harm for harm in self._harms if harm["signal"] == "SIGKILL"]
        doubles = Counter(page for page, _ in self._results())
        return {
            "harms": f"{len(self._harms)} ({', '.join(f'{count} {kind}' for kind, count in sorted(kinds.items()))})",
            "SIGKILLs": f"{len(kills)}, {sum(1 for harm in kills if harm['in_hand'])} while work was in hand",
            "pages": f"{len(self._pages)}, {len(self._files.requests)} requests",
            "losses": str(len(self.lost)),
            "doubles": str(sum(count - 1 for count in doubles.values())),
            "extra requests": f"{self.extra_requests} (in hand at the harms: {sum(h['in_hand'] for h in self._harms)})",
            "extra writes of a result": str(sum(max(0, len(times) - 1) for times in self._written.values())),
            "longest standstill": self._standstill(),
            "slowest recovery": self._recovery(),
        }

    def _standstill(self) -> str:
        """Between two requests, while there were pages left to be asked for."""
        last_new = max((times[0] for times in self._asked.values()), default=0.0)
        times = [request.time for request in self._files.requests if request.time <= last_new]
        gaps = [(again - before, before) for before, again in _pairs(times)]
        seconds, since = max(gaps, default=(0.0, 0.0))
        return f"{seconds:.1f} s without a request, {since - self._start:.0f} s after the beginning"

    def _recovery(self) -> str:
        """From a harm, or its end, to the next page that was done."""
        ends = {event["harm"]: event["time"] for event in self._of("over")}
        done = sorted(task["updatetime"] for task in self._rows if task["status"] == "success")
        found = []
        for harm in self._harms:
            since = ends.get(harm["harm"], harm["time"])
            at = bisect_left(done, since)
            if at < len(done):
                found.append((done[at] - since, f"after harm {harm['harm']}, {harm['kind']} of {harm['role']}"))
        seconds, what = max(found, default=(0.0, "no harm"))
        return f"{seconds:.1f} s until the next page was done, {what}"

    @property
    def _start(self) -> float:
        return float(self._begin.get("time", 0.0))


def _in_hand(files: Files) -> dict[int, list[float]]:
    """When each page was in hand at a harm, in order.

    Of a harm that lasts, everything that was in hand meanwhile is so at its end, too: who wakes up goes on with what he had. While a
    server is away or cut off, whoever waits for its answer may have to put once more what got through already: what is asked for
    meanwhile is in hand from then on. Of a harm to a server or a scheduler also what was on its way to a fetcher and is asked for soon
    after, since nobody can see it from outside; of a SIGTERM what is asked for until the process has drained, since it gives back what
    still reaches it.
    """
    found: dict[int, list[float]] = {}
    began: dict[int, Row] = {}
    first: dict[str, float] = {}
    for request in files.requests:
        first.setdefault(request.path, request.time)
    for event in sorted(files.events, key=lambda event: float(event["time"])):
        if event["event"] not in ("harm", "over"):
            continue
        if event["event"] == "over" and event["harm"] not in began:
            continue  # what was not begun allows for nothing
        harm = began.setdefault(event["harm"], event)
        since = harm["time"] - _LOOK
        meanwhile = {request.path for request in files.requests if since <= request.time <= event["time"]}
        if harm["role"].partition("[")[0] in (*SERVERS, "scheduler") or harm["kind"] == "term":
            meanwhile |= {path for path, time in first.items() if 0 <= time - event["time"] <= _ON_ITS_WAY}
        named = {page for path in meanwhile if (page := number(path)) is not None}
        for page in named.union(harm["pages"], event["pages"]):
            asked = first.get(pages.path_of(page), 0.0)
            during = harm["role"] in SERVERS and harm["time"] < asked < event["time"]
            found.setdefault(page, []).append(asked if during else event["time"])
    return {page: sorted(moments) for page, moments in found.items()}


def _pairs(times: Sequence[float]) -> Iterator[tuple[float, float]]:
    ordered = sorted(times)
    return itertools.pairwise(ordered)


def _right(page: int, row: Row) -> bool:
    return bool(row["result"] == {"page": page, "title": pages.title(page)})
