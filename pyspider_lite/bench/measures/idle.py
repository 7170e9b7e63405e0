"""What the system costs when there is nothing to do: CPU of each process, commands that the broker gets."""

import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pyspider_lite import bootstrap
from pyspider_lite.bench import processes
from pyspider_lite.bench.idle_workers.crowd import Crowd
from pyspider_lite.bench.rounds import Figures, Subject
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.bench.suite import ALL, Plan, Suite
from pyspider_lite.errors import PyspiderLiteError
from pyspider_lite.models.names import Role
from pyspider_lite.models.project import Project, ProjectStatus

#: with so many projects as well, on `all`
PROJECTS = 1_000
#: where there is a broker: so many of each role are played beside the system, which has one of each itself; with them it has so many workers
PLAYED = {Role.FETCHER: 44, Role.PROCESSOR: 44, Role.RESULT_WORKER: 9}
_REAL = len(PLAYED)
WORKERS = _REAL + sum(PLAYED.values())
_SECONDS = 30.0
#: the system is idle when all processes together take less than this share of a core, in two looks of so many seconds one after the other;
#: it has to be so within a limit
_QUIET, _LOOK, _PATIENCE = 0.25, 3.0, 200.0


def subjects(folder: Path, plans: Sequence[Plan], seconds: float | None) -> list[Subject]:
    """One a stack with nothing else, one on `all` with many projects, and on brokers one with many workers."""
    found = []
    for plan in plans:
        more: tuple[int, Mapping[Role, int]] = (PROJECTS, {}) if plan is ALL else (0, PLAYED)
        for projects, played in ((0, {}), more):
            found.append(_subject(folder, plan, projects, played, seconds or _SECONDS))
    return found


def name_of(plan: str, projects: int = 0, workers: int = 0) -> str:
    """Of the subject with so many projects or workers; 0: as few as there can be."""
    more = f" {projects} projects" if projects else f" {workers} workers" if workers else ""
    return f"idle {plan}{more}"


def _subject(folder: Path, plan: Plan, projects: int, played: Mapping[Role, int], seconds: float) -> Subject:
    name = name_of(plan.name, projects, WORKERS if played else 0)

    def run(number: int) -> Figures:
        return measure(folder / f"{name.replace(' ', '-')}-{number}", plan, projects, played, seconds)

    return Subject(name, run)


def measure(folder: Path, plan: Plan, projects: int, played: Mapping[Role, int], seconds: float) -> Figures:
    """Percent of a core, of each role and of the process that takes most; commands a second of a Redis. ``played``: workers of each role beside
    the real ones; what they take themselves is not counted, what they say to the broker is."""
    with (
        Suite(folder, plan, processors=1, verbose=False) as suite,
        Crowd(folder / "config.json", played, folder / "played.txt") as crowd,
    ):
        if projects:
            _enter(suite, projects)
        settled = _settle(suite, lambda: _leads(suite) and _workers(suite) >= _REAL + crowd.size)
        before = {pid: processes.used(pid) for pid in suite.pids()}
        commands, servers_before = _commands(suite), suite.server_cpu()
        began = time.monotonic()
        time.sleep(seconds)
        seconds = time.monotonic() - began
        used = {pid: 100 * (processes.used(pid) - before.get(pid, 0.0)) / seconds for pid in suite.pids()}
        commands = _commands(suite) - commands
        servers_used = {name: 100 * (cpu - servers_before[name]) / seconds for name, cpu in suite.server_cpu().items()}
        roles = {processes.role(pid): 0.0 for pid in used}
        for pid, percent in used.items():
            roles[processes.role(pid)] += percent
        workers, ended = _workers(suite), not (suite.runs and crowd.runs)
    figures: Figures = {
        "projects": projects,
        "workers": workers,
        "max_percent": round(max(used.values()), 2),
        "roles_percent": {role: round(percent, 2) for role, percent in sorted(roles.items())},
        "servers_percent": {name: round(percent, 2) for name, percent in servers_used.items()},
        "problems": "a process ended" if ended else "" if settled else f"not idle within {_PATIENCE:g} s",
    }
    if commands:
        figures["broker_commands_per_s"] = round(commands / seconds, 1)
    return figures


def _enter(suite: Suite, count: int) -> None:
    with bootstrap.open_projectdb(suite.settings, create=True) as projectdb:
        for index in range(count):
            # a comment makes each script another one
            script = f"# {index}\nfrom pyspider_lite import BaseHandler\n\nclass Handler(BaseHandler):\n    pass\n"
            projectdb.insert(Project(name=f"idle_{index:05}", script=script, status=ProjectStatus.RUNNING))


def _settle(suite: Suite, complete: Callable[[], bool]) -> bool:
    """Wait until the system is ``complete`` and nothing goes on any more; False if that takes too long."""
    end = time.monotonic() + _PATIENCE
    quiet = 0
    while quiet < 2 and time.monotonic() < end and suite.runs:
        before = suite.used()
        time.sleep(_LOOK)
        quiet = quiet + 1 if suite.used() - before < _QUIET * _LOOK and complete() else 0
    return quiet == 2


def _leads(suite: Suite) -> bool:
    try:
        bootstrap.scheduler_rpc(suite.settings)
    except PyspiderLiteError:
        return False
    return True


def _workers(suite: Suite) -> int:
    """That the scheduler has heard of, itself not among them."""
    with bootstrap.open_taskdb(suite.settings) as taskdb:
        return sum(row.beat.role != Role.SCHEDULER for row in taskdb.workers())


def _commands(suite: Suite) -> int:
    """That the Redis got so far, if there is one."""
    for server in suite.servers:
        if isinstance(server, Redis):
            with server.client() as client:
                return int(client.info("stats")["total_commands_processed"])
    return 0
