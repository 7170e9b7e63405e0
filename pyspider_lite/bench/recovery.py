"""How soon work goes on after a kill: ``python -m pyspider_lite.bench.recovery`` measures it with real daemons and prints a table.

On each stack run two fetchers, four processors, three result workers and two schedulers, with pages that are slow in one of the three
hands each. In each round one worker of every role gets SIGKILL while work is in its hand; what it had begun and never ended has to
begin elsewhere. Then it is the leading scheduler's turn: SIGKILL, SIGTERM, SIGSTOP for longer than its term.
"""

import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import click

from pyspider_lite.bench import ending, given, processes, programs
from pyspider_lite.bench.recovery_suite import Daemons
from pyspider_lite.bench.recovery_work import SLOW, Log, Site
from pyspider_lite.bench.suite import STACKS
from pyspider_lite.models.names import Role

#: seconds that a recovery may take before the measurement fails
_LIMIT = 60.0
#: seconds of work before the first round
_CATCH_UP = 15.0
#: seconds of quiet after a round
_SETTLE = 3.0
#: seconds that a leader stands still: longer than its term and than its ZooKeeper session
_FREEZE = 12.0
#: tries to freeze a leader that does not hold the lock of an SQLite file: as long as it does, no process can write there
_TRIES = 10
_WORKERS = {"fetch": Role.FETCHER, "process": Role.PROCESSOR, "result": Role.RESULT_WORKER}
#: row of the table -> the work that was broken off, and what has to begin again: a run whose results were not stored begins with a request
_AGAIN = {
    "fetcher killed: its tasks run elsewhere": ("fetch", "fetch"),
    "processor killed: its tasks run elsewhere": ("process", "process"),
    "result worker killed: its tasks run elsewhere": ("result", "asked"),
    "result worker killed: their results reach another": ("result", "result"),
}
#: what is done to a leader
HARMS = {"killed": signal.SIGKILL, "stopped by SIGTERM": signal.SIGTERM, "frozen": signal.SIGSTOP}
#: row of the table -> seconds, one a round
Figures = dict[str, list[float]]


@click.command()
@click.option("--times", default=10, show_default=True, type=click.IntRange(1), help="How often each is killed.")
@click.option("--stack", "stacks", multiple=True, type=click.Choice(sorted(STACKS)), help="Not set: all.")
@click.option(
    "--coordinator", "coordinators", multiple=True, type=click.Choice(["taskdb", "zookeeper"]), help="Not set: both."
)
@click.option("--only", type=click.Choice(["workers", "schedulers"]), help="Kill no others.")
@click.option(
    "--harm", "harms", multiple=True, type=click.Choice(list(HARMS)), help="What happens to leaders; not set: all."
)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write all figures to this file.")
@click.option("--keep", type=given.EmptyFolder(), help="Empty folder to work in; it is kept.")
def main(
    times: int,
    stacks: tuple[str, ...],
    coordinators: tuple[str, ...],
    only: str | None,
    harms: tuple[str, ...],
    json_file: Path | None,
    keep: Path | None,
) -> None:
    """Kill daemons that have work in hand and print how soon it goes on, as a table in Markdown."""
    rows: list[tuple[str, str, Figures]] = []
    if json_file:
        given.try_to_write(json_file)
    with ending.in_order(), tempfile.TemporaryDirectory(prefix="pyspider_lite-recovery-") as temporary:
        for stack in stacks or sorted(STACKS):
            for coordinator in coordinators or ("taskdb", "zookeeper"):
                folder = Path(keep or temporary).resolve() / f"{stack}-{coordinator}"
                folder.mkdir(parents=True)
                # workers do not know who coordinates the schedulers: with one of the two is enough
                workers = only != "schedulers" and (coordinator == "taskdb" or len(coordinators) == 1)
                chosen = () if only == "workers" else harms or tuple(HARMS)
                figures = measure(folder, stack, coordinator, times, workers=workers, harms=chosen)
                rows.append((stack, coordinator, figures))
    if json_file:
        json_file.write_text(json.dumps(rows, indent=1))
    print("\n".join(table(rows)))


def table(rows: list[tuple[str, str, Figures]]) -> list[str]:
    """In Markdown: median and worst."""
    lines = ["| what happens | stack | who decides who leads | median | worst | rounds |", "|---|---|---|---|---|---|"]
    for what in dict.fromkeys(what for _, _, figures in rows for what in figures):
        for stack, coordinator, figures in rows:
            if seconds := figures.get(what):
                middle, worst = statistics.median(seconds), max(seconds)
                who = coordinator if "scheduler" in what else ""
                lines.append(f"| {what} | {stack} | {who} | {middle:.1f} s | {worst:.1f} s | {len(seconds)} |")
    return lines


def measure(
    folder: Path, stack: str, coordinator: str, times: int, *, workers: bool = True, harms: Sequence[str] = tuple(HARMS)
) -> Figures:
    """The figures of one stack; raises RuntimeError when something does not recover at all."""
    log = Log(folder / "events")
    with (
        contextlib.closing(log),
        Site(log) as site,
        Daemons(folder, STACKS[stack], coordinator == "zookeeper") as daemons,
    ):
        bench = _Bench(daemons, log, holds_files="sqlite" in stack)
        daemons.start_work(site)
        bench.wait(lambda: all(log.latest(kind) for kind in (*_WORKERS, "tick")), 300, "work did not begin")
        # what came due before there was anybody to do it is done by then
        time.sleep(_CATCH_UP)
        figures = bench.workers(times) if workers else {}
        figures |= bench.schedulers(times, harms)
        return figures


class _Bench:
    def __init__(self, daemons: Daemons, log: Log, *, holds_files: bool) -> None:
        self._daemons = daemons
        self._holds_files = holds_files
        self._log = log
        self._random = random.Random(1)
        self._found: list[int] = []

    def wait(self, condition: Callable[[], object], seconds: float, what: str) -> None:
        """Until it holds."""
        end = time.monotonic() + seconds
        while not condition():
            if time.monotonic() > end:
                raise RuntimeError(f"{what} within {seconds:g} s; see {self._daemons.folder}/log.txt")
            time.sleep(0.02)

    # --- workers --------------------------------------------------------------------------------------------------------

    def workers(self, times: int) -> Figures:
        """Rounds until each role was killed so often with work in hand. Raises RuntimeError if one never had any that was broken off."""
        figures: Figures = {name: [] for name in _AGAIN}
        for _ in range(4 * times):
            for name, seconds in self._kill_workers().items():
                figures[name].append(seconds)
            if all(len(seconds) >= times for seconds in figures.values()):
                break
        if short := [name for name, seconds in figures.items() if len(seconds) < times]:
            raise RuntimeError(f"too few kills broke work off: {', '.join(short)}; see {self._daemons.folder}/events")
        return {name: seconds[:times] for name, seconds in figures.items()}

    def _kill_workers(self) -> dict[str, float]:
        """One of each role, while it has begun something; seconds until that has begun again."""
        killed: dict[str, float] = {}
        for kind, role in _WORKERS.items():
            self.wait(partial(self._victims, kind, role), _LIMIT, f"nothing of {kind} was in hand")
            os.kill(self._random.choice(self._found), signal.SIGKILL)
            killed[kind] = time.monotonic()
        self._daemons.restart_missing()
        # what was in hand of others has ended by now
        time.sleep(max(SLOW.values()) + 1.0)
        seconds = {}
        for name, (kind, again) in _AGAIN.items():
            at = killed[kind]
            broken = self._log.broken(kind, at)
            for key in broken:
                self.wait(partial(self._log.began_after, again, key, at), _LIMIT, f"{key} did not begin again")
            if broken:
                seconds[name] = max(self._log.began_after(again, key, at) for key in broken) - at
        _say(f"workers: {seconds}")
        time.sleep(_SETTLE)
        return seconds

    def _victims(self, kind: str, role: Role) -> list[int]:
        """Workers of the role that are amid a piece of work: it is noted by themselves, or by the process that runs their callbacks."""
        # that takes its time on a busy machine, so it comes first
        trees = {pid: processes.tree(pid) for pid in self._daemons.pids_of(role)}
        busy = self._log.in_hand(kind, time.monotonic())
        self._found = [pid for pid, tree in trees.items() if not set(busy).isdisjoint(tree)]
        return self._found

    # --- schedulers -----------------------------------------------------------------------------------------------------

    def schedulers(self, times: int, harms: Sequence[str]) -> Figures:
        """The leader is killed, stopped and frozen in turn."""
        figures: Figures = {}
        for _ in range(times):
            for harm in harms:
                leads, works = self._harm_leader(HARMS[harm])
                figures.setdefault(f"leading scheduler {harm}: another leads", []).append(leads)
                figures.setdefault(f"leading scheduler {harm}: work is given out again", []).append(works)
        return figures

    def _harm_leader(self, number: int) -> tuple[float, float]:
        daemons = self._daemons
        self.wait(lambda: len(daemons.pids_of(Role.SCHEDULER)) > 1 and daemons.leader(), _LIMIT, "no stand-by")
        time.sleep(_SETTLE)
        epoch, victim = daemons.leader() or (0, 0)
        if number == signal.SIGSTOP and self._holds_files:
            self._freeze_without_lock(victim)
        at = time.monotonic()
        os.kill(victim, number)
        self.wait(lambda: (daemons.leader() or (0, 0))[0] > epoch, _LIMIT, "nobody leads")
        taken = daemons.leader()
        leads = time.monotonic() - at
        # what the old one gave out last is with the fetchers at once: pages of this kind are quick
        quiet = at + 1.0
        self.wait(lambda: self._log.latest("tick") > max(quiet, at + leads), _LIMIT, "no work was given out")
        works = self._log.first("tick", max(quiet, at + leads)) - at
        if number == signal.SIGSTOP:
            time.sleep(max(0.0, at + _FREEZE - time.monotonic()))
            os.kill(victim, signal.SIGCONT)
            time.sleep(_SETTLE)
            new = daemons.leader()
            if new is None or new != taken:
                raise RuntimeError(f"a scheduler that was frozen took the lead back: epoch {epoch}, now {new}")
        daemons.restart_missing()
        _say(f"scheduler {signal.Signals(number).name}: leads {leads:.1f}, works {works:.1f}")
        return leads, works

    def _freeze_without_lock(self, victim: int) -> None:
        """Stop it where it holds no lock of the taskdb's file; the time until then is not counted."""
        for _ in range(_TRIES):
            os.kill(victim, signal.SIGSTOP)
            if self._daemons.taskdb_is_free():
                return
            os.kill(victim, signal.SIGCONT)
            time.sleep(0.1)
        raise RuntimeError(f"the leader held the lock of the taskdb at each of {_TRIES} moments")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(programs.run(main, "scripts/recovery"))
