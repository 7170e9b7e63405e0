"""What `doctor` calls wrong, from pictures made by hand; and what the command does where there is nothing, or no answer."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import exit_codes
from pyspider_lite.cli import cluster_checks, doctor, project_checks
from pyspider_lite.cli.cluster_view import View
from pyspider_lite.cli.picture import Found, Picture, Remedy, TableSeen, some
from pyspider_lite.database.base import Leader
from pyspider_lite.database.inspection import Compared, ControlSeen
from pyspider_lite.models.control import ControlKind
from pyspider_lite.models.project import ProjectHead, ProjectState
from pyspider_lite.models.worker import Alone, Beat, WorkerRow

NOW = 1_000_000.0
ROLES = ("scheduler", "fetcher", "processor", "result_worker")


def row(role: str, worker: str = "", age: float = 1.0, ahead: float = 0.0, **said: Any) -> WorkerRow:
    said = {"version": "1.0", "time": NOW - age + ahead, **said}
    worker = worker or f"web:{role}:ab"
    beat = Beat(worker=worker, role=role, host=worker.partition(":")[0], pid=1, **said)
    return WorkerRow(beat=beat, seen=NOW - age)


def picture(*workers: WorkerRow, leads: float = 5.0, depths: dict[str, int] | None = None, **fields: Any) -> Picture:
    """A cluster in which nothing is wrong, but for ``fields``."""
    rows = workers or tuple(row(role) for role in ROLES)
    leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=NOW + leads)
    view = View(now=NOW, leader=leader, workers=list(rows), depths=depths or {})
    head = ProjectHead(name="p", group=None, status="RUNNING", rate=1, burst=1, updatetime=1, generation="g")
    whole = {"version": "1.0", "heads": {"p": head}, "limit": 1000, **fields}
    return Picture(view=view, **whole)


def processes(seen: Picture) -> list[Found]:
    return list(cluster_checks.check(seen))


def projects(seen: Picture) -> list[Found]:
    return list(project_checks.check(seen))


def only(found: list[Found]) -> Found:
    (one,) = found
    return one


# --- processes ----------------------------------------------------------------------------------------------------------


def test_a_whole_cluster() -> None:
    assert processes(picture()) == projects(picture()) == []
    busy = picture(
        depths={"fetcher2processor": 40, "status_queue": 900}, states={"p": ProjectState(project="p", active=1)}
    )
    assert processes(busy) == []


def test_who_is_missing_is_one_finding_with_what_waits_for_him() -> None:
    rest = [row(role) for role in ROLES if role != "processor"]
    depths = {"fetcher2processor": 3, "scheduler2processor": 1}
    busy: Any = {"depths": depths, "states": {"p": ProjectState(project="p", active=1)}}
    gone = only(processes(picture(*rest, row("processor", age=30), **busy)))
    assert gone.text.startswith(
        "no processor is running, with 3 messages in fetcher2processor and 1 message in scheduler2processor: start one"
    )
    paused = only(processes(picture(*rest, row("processor", state="drained"), **busy)))
    assert paused.text.startswith("all processors are paused, with ")


def test_the_lead() -> None:
    assert "no scheduler leads although web:scheduler:ab lives" in only(processes(picture(leads=-1))).text
    nobody = picture(row("fetcher"), leads=-1, depths={"status_queue": 5})
    assert only(processes(nobody)).text.startswith("no scheduler is running, with 5 messages in status_queue, so")
    held = only(processes(picture(row("fetcher"), leads=500)))
    assert (held.check, held.remedy) == ("leader", Remedy.LEADER)


def test_a_scheduler_that_cannot_write_says_itself_what_it_waits_for() -> None:
    """Its disk is full, so the table of workers cannot tell."""
    seen = picture(row("scheduler", age=60), leads=-50)
    assert only(processes(seen)).text.startswith("no scheduler is running")
    seen.view.answers = {"web:scheduler:ab": {"sqlite+taskdb:///data/task.db": NOW - 55}}
    lead, waits = processes(seen)
    assert "no scheduler leads although web:scheduler:ab lives" in lead.text
    assert waits.text.startswith("web:scheduler:ab cannot reach sqlite+taskdb:///data/task.db for 55 s")


def test_workers_are_not_missed_while_the_queues_do_not_answer() -> None:
    seen = picture(row("scheduler"))
    assert len(processes(seen)) == 3
    seen.view.depths = None
    assert processes(seen) == []


@pytest.mark.parametrize(
    ("ahead", "depth", "wrong"),
    [(3600, 0, True), (3600, 999, True), (-3600, 0, True), (-3600, 999, False), (9, 0, False), (-9, 0, False)],
)
def test_clocks(ahead: float, depth: int, wrong: bool) -> None:
    """What waited to be heard is no clock that is behind."""
    rows = [row(role) for role in ROLES] + [
        row("fetcher", "db:1:cd", ahead=ahead),
        row("processor", "db:2:cd", ahead=ahead),
    ]
    found = processes(picture(*rows, depths={"status_queue": depth}))
    direction = "ahead of" if ahead > 0 else "behind"
    expected = [
        f"the clock of db is 3600 s {direction} the database's: times in its logs and results are wrong; have NTP set it"
    ]
    assert [one.text for one in found] == (expected if wrong else [])


def test_clocks_of_this_machine_and_of_workers_that_do_not_say() -> None:
    assert only(processes(picture(ahead=-77.0))).text.startswith("the clock of this machine is 77 s behind")
    assert processes(picture(*[row(role, **{"time": 0.0}) for role in ROLES])) == []


def test_versions() -> None:
    old = row("fetcher", "db:1:cd", version="0.9")
    assert only(processes(picture(*[row(role) for role in ROLES], old))).text.startswith(
        "fetcher db:1:cd runs version 0.9, the scheduler that leads 1.0: "
    )
    assert only(processes(picture(version="2.0"))).text.startswith("this command is version 2.0, the cluster 1.0: ")


def test_workers_that_wait() -> None:
    rows = [row(role, waiting={"redis://b/0": NOW - 70, "mysql://m": NOW - 3}) for role in ROLES[1:]]
    waiting = only(processes(picture(row("scheduler"), *rows)))
    assert waiting.text.startswith(
        "web:fetcher:ab, web:processor:ab, web:result_worker:ab cannot reach redis://b/0 for 70 s: see that it runs"
    )
    full = row(
        "result_worker",
        waiting={"sqlite+resultdb:///r.db": NOW - 70},
        reasons={"sqlite+resultdb:///r.db": "the disk is full"},
    )
    rows = [row(role) for role in ROLES if role != "result_worker"]
    assert only(processes(picture(*rows, full))).text == (
        "web:result_worker:ab: waiting for sqlite+resultdb:///r.db for 70 s: the disk is full"
    )


def test_what_goes_alone() -> None:
    alone = row("scheduler", alone=Alone("shop", "t:7", NOW - 5))
    found = only(processes(picture(alone, *[row(role) for role in ROLES[1:]])))
    assert (found.check, found.subject) == ("alone", "shop:t:7")
    assert "for 5 s" in found.text and "`explain shop t:7` tells more, `project stop shop` ends it" in found.text


def test_messages_of_no_task() -> None:
    left = only(processes(picture(depths={"scheduler2fetcher": 2, "processor2result": 4})))
    assert (left.subject, left.remedy) == ("scheduler2fetcher", Remedy.PURGE)
    control = ControlSeen(id="i", project="p", kind="info", generation="g", created=NOW, readable=True, raw="")
    assert processes(picture(depths={"scheduler2fetcher": 2}, controls=[control])) == []


# --- projects -----------------------------------------------------------------------------------------------------------


def control(kind: str, age: float, **fields: Any) -> ControlSeen:
    whole: dict[str, Any] = {"project": "p", "generation": "g", "readable": True, "raw": "{}", **fields}
    return ControlSeen(id=f"{kind}:p", kind=kind, created=NOW - age, **whole)


@pytest.mark.parametrize(
    ("row", "check"),
    [
        (control(ControlKind.INFO, 100), ""),
        (control(ControlKind.INFO, 130), "project"),
        (control(ControlKind.MESSAGE, 500), ""),
        (control(ControlKind.MESSAGE, 700), "control"),
        (control(ControlKind.MESSAGE, 700, generation="an earlier one"), ""),
        (control(ControlKind.DELETE, 50, project="gone"), ""),
        (control(ControlKind.DELETE, 70, project="gone"), "control"),
    ],
)
def test_control_work_that_waits(row: ControlSeen, check: str) -> None:
    assert [one.check for one in projects(picture(controls=[row]))] == ([check] if check else [])
    # without a scheduler that is its absence's fault
    assert projects(picture(controls=[row], leads=-1)) == []


@pytest.mark.parametrize(
    ("status", "rows", "said"), [("STOP", 22_000, True), ("STOP", 999, False), ("RUNNING", 22_000, False)]
)
def test_control_work_that_nothing_gives_out(status: str, rows: int, said: bool) -> None:
    head = ProjectHead(name="p", group=None, status=status, rate=1, burst=1, updatetime=1, generation="g")
    found = projects(picture(held={"p": rows, "unknown": rows}, heads={"p": head}))
    if said:
        text = only(found).text
        assert text.startswith("p is STOP and holds 22000 rows of control work")
        assert "nothing will give out until it runs" in text
    else:
        assert found == []


def test_what_the_scheduler_knows() -> None:
    known = {"active": True, "asked": True, "paused": False, "known": 3}
    assert projects(picture(live={"p": known})) == []
    assert "the scheduler does not know it" in only(projects(picture(live={}))).text
    mute = {**known, "asked": False}
    assert only(projects(picture(live={"p": mute}))).remedy == Remedy.LOOK_AGAIN
    assert projects(picture(live={"p": mute}, controls=[control(ControlKind.INFO, 10)])) == []
    lost = only(projects(picture(live={"p": known}, strangers={"p": [(f"t{number}", 1.0) for number in range(5)]})))
    assert lost.text.startswith("5 tasks of p (t0, t1, t2 and 2 more) are due and without a lease")


@pytest.mark.parametrize(
    ("kept", "found", "wrong"),
    [
        (5, 5, False),
        (5, 6, True),
        (1000, 1000, False),
        # 1001 stands for more than 1000
        (1000, 1001, True),
        (1001, 1001, False),
        (9_000_000, 1001, False),
        (9_000_000, 1000, True),
    ],
)
def test_counts(kept: int, found: int, wrong: bool) -> None:
    compared = Compared(kept={"success": kept}, found={"success": found}, strange=0)
    assert bool(projects(picture(tables={"p": TableSeen(compared=compared)}, with_tasks={"p"}))) is wrong


def test_names_are_cut() -> None:
    assert some(["a", "b", "c"]) == "a, b, c"
    assert some(["a", "b", "c", "d", "e"]) == "a, b, c and 2 more"


# --- the command --------------------------------------------------------------------------------------------------------


@pytest.fixture
def run(command: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")

    def run(*words: str, **config: Any) -> Any:
        file = tmp_path / "config.json"
        file.write_text(json.dumps(config))
        return command("-c", str(file), "doctor", *words)

    return run


def test_where_nothing_was_nothing_is_made(run: Callable[..., Any]) -> None:
    outcome = run("--repair")
    assert (outcome.code, outcome.err) == (0, "")
    assert outcome.out == "not checked: projects, tasks and workers: nothing was here yet\nnothing wrong\n"
    assert list(Path().iterdir()) == []


@pytest.mark.parametrize("wrong", [{"fetcher": {"poolsize": "many"}}, {"message_queue": "rediss:/x"}])
def test_a_configuration_of_no_use_has_the_code_of_one(run: Callable[..., Any], wrong: dict[str, Any]) -> None:
    outcome = run(**wrong)
    assert outcome.code == exit_codes.BAD_CONFIG, outcome.out
    assert outcome.out.startswith("problem: ")


def test_servers_that_are_away(run: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "BETWEEN", 0.0)
    outcome = run(taskdb="mysql+taskdb://u:secret@127.0.0.1:1/t", message_queue="redis://127.0.0.1:1/0", pol_size=3)
    assert outcome.code == 1
    lines = outcome.out.splitlines()
    for beginning in ("problem: settings: ", "problem: taskdb: ", "problem: message-queue: "):
        assert sum(line.startswith(beginning) for line in lines) == 1, lines
    assert "not checked: projects, tasks and workers, because of the taskdb" in lines
    assert "secret" not in outcome.out
