"""What `cluster list` says: what is missing, and how it is shown."""

import time

import pytest
from cluster_rows import ALL, NOW, row, view

from pyspider_lite.cli import cluster_view
from pyspider_lite.cli.cluster_view import View
from pyspider_lite.database.base import Leader
from pyspider_lite.models.worker import Alone

# --- what is missing ----------------------------------------------------------------------------------------------------


def test_a_complete_cluster_misses_nothing() -> None:
    assert cluster_view.missing(view(*ALL)) == []


@pytest.mark.parametrize("role", ["fetcher", "processor", "result_worker"])
def test_a_role_that_is_missing_silent_or_paused(role: str) -> None:
    others = [one for one in ALL if one.beat.role != role]
    assert cluster_view.missing(view(*others)) == [f"no {role} is running"]
    assert cluster_view.missing(view(*others, row(role, age=30))) == [f"no {role} is running"]
    paused = [row(role, state="paused"), row(role, "db:1:cd", state="drained")]
    assert cluster_view.missing(view(*others, *paused)) == [f"all {role}s are paused"]
    assert cluster_view.missing(view(*others, *paused, row(role, "x:1:cd"))) == []
    waits = row(role, "x:1:cd", waiting={"redis://db/0": NOW - 9})
    assert cluster_view.missing(view(*others, *paused, waits)) == [f"every {role} waits for redis://db/0"]
    assert cluster_view.missing(view(*ALL, waits)) == []


def test_no_leader_and_no_workers() -> None:
    (first, second) = cluster_view.missing(view(*ALL, leads=False))
    assert (first, second[:31]) == ("no scheduler leads", "nobody hears the other workers ")
    assert cluster_view.missing(view(leads=False)) == ["no scheduler is running"]
    (sentence,) = cluster_view.missing(view(ALL[0]))
    assert sentence.startswith("a scheduler leads, but hears no worker: do they run")
    (sentence,) = cluster_view.missing(
        view(row("scheduler", waiting={"redis://db/0": NOW - 9}), row("fetcher", age=30))
    )
    assert sentence == "a scheduler leads, but hears no worker while it waits for redis://db/0"
    alone = row("scheduler", alone=Alone("shop", "t", NOW - 9))
    assert cluster_view.missing(view(alone))[0].startswith("a scheduler leads, but hears no worker: do they run")
    assert cluster_view.notes(view(alone), alone) == ["all waits for shop:t, which goes alone, since 9 s"]


def test_what_cannot_be_asked_is_missing_too() -> None:
    half = View(depths={"status_queue": 2}, problems=["taskdb: away"])
    assert cluster_view.missing(half) == ["taskdb: away"]
    assert list(cluster_view.as_lines(half)) == ["queues: status_queue 2", "missing: taskdb: away"]


def test_a_leader_that_was_killed_is_no_stand_by() -> None:
    killed = {age: row("scheduler", age=age, state="leading") for age in (4.0, 7.0)}
    assert [cluster_view.state(view(one, leads=False), one) for one in killed.values()] == ["lost the lead", "silent"]
    lines = list(cluster_view.as_lines(view(killed[7.0], leads=False)))
    assert "silent for 7 s" in lines[1]
    assert "leader: nobody; until 5 s ago it was web:scheduler:ab, epoch 3" in lines
    assert not [line for line in lines if line.startswith("standing by")]
    assert cluster_view.missing(view(killed[7.0], leads=False))[0] == "no scheduler is running"


def test_a_leader_that_gave_the_lead_back() -> None:
    """As `cluster stop scheduler` has it do."""
    free = view(row("scheduler", age=90.0, state="leading"), leads=False)
    free.leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=0.0, rpc="")
    lines = list(cluster_view.as_lines(free))
    assert "leader: nobody; the last one, web:scheduler:ab, epoch 3, gave the lead back" in lines


def test_a_lead_that_nobody_can_have() -> None:
    """The database's clock went back, or somebody wrote the row."""
    held = view(*ALL)
    held.leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=NOW + 5000, rpc="")
    assert cluster_view.missing(held)[0] == "no scheduler can lead, because the leader row is held: run doctor"
    assert "leader: nobody; the row gives the lead to web:scheduler:ab for another 83 min" in "\n".join(
        cluster_view.as_lines(held)
    )


def test_workers_are_not_looked_for_while_the_queues_do_not_answer() -> None:
    dumb = view(ALL[0])
    dumb.depths = None
    assert cluster_view.missing(dumb) == ["a scheduler leads, but hears no worker while it waits for the message-queue"]


def test_nobody_ever_led() -> None:
    assert "leader: nobody, and there was none yet" in list(cluster_view.as_lines(View(now=NOW, workers=[])))


def test_a_scheduler_that_cannot_write_is_asked_what_it_waits_for() -> None:
    mute = row("scheduler", age=300, state="leading")
    seen = view(mute, leads=False, answers={"web:scheduler:ab": {"sqlite:///task.db": 1000.0}})
    stamp = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(1000.0))
    assert cluster_view.missing(seen)[:2] == [
        "no scheduler leads",
        f"scheduler web:scheduler:ab waits for sqlite:///task.db since {stamp}",
    ]
    assert cluster_view.state(seen, mute) == "waiting"
    assert cluster_view.notes(seen, mute)[0].startswith("waits for sqlite:///task.db since ")


# --- how it is shown ----------------------------------------------------------------------------------------------------


def test_notes_tell_the_odd_ones() -> None:
    away = {"waiting": {"redis://db/0": NOW - 300}, "reasons": {"redis://db/0": "refused"}}
    odd = row("fetcher", "db:1:cd", config_hash="beef", version="0.9", **away)
    seen = view(*ALL, odd)
    assert cluster_view.notes(seen, odd) == [
        "other config",
        "other version",
        "waits for redis://db/0 since 5 min: refused",
    ]
    assert cluster_view.notes(seen, ALL[1]) == []
    assert cluster_view.notes(view(row("scheduler", config_hash="beef")), row("scheduler", config_hash="beef")) == []


def test_a_hundred_workers_are_a_table() -> None:
    fetchers = [
        row("fetcher", f"web{number:03}:1:ab", load=number, rpc="http://10.0.0.1:24444/") for number in range(100)
    ]
    gone = [row("fetcher", f"old{number:03}:1:ab", age=4000 + number) for number in range(50)]
    stand_by = row("scheduler", "spare:1:ab")
    lines = list(cluster_view.as_lines(view(*fetchers, *ALL, *gone, stand_by)))
    assert lines[0].split() == ["role", "worker", "version", "load", "rate", "beat", "state", "rpc"]
    assert lines[1].split() == ["scheduler", "spare:1:ab", "1.0", "0", "1", "s", "ago", "standing", "by"]
    assert lines[2].split()[:2] == ["scheduler", "web:scheduler:ab"]
    assert len(lines) == 112 and max(len(line) for line in lines[:100]) < 110
    assert lines[107] == cluster_view.NOT_LISTED
    assert lines[108].startswith("not heard for long, forgotten after a day: fetcher old000:1:ab (67 min), ")
    assert lines[108].endswith(" and 40 more")
    assert lines[109:] == [
        "leader: web:scheduler:ab, epoch 3, http://web:23333/",
        "standing by: spare:1:ab",
        "queues: status_queue 2",
    ]


def test_records_are_for_programs() -> None:
    records = list(cluster_view.as_records(view(*ALL[:2])))
    assert [record["type"] for record in records] == ["worker", "worker", "leader", "queues", "missing", "missing"]
    assert (records[0]["state"], records[1]["state"]) == ("leading", "at work")
    assert records[2]["epoch"] == 3
    assert records[3] == {"type": "queues", "status_queue": 2}
    assert records[4]["text"] == "no processor is running"
