"""`project jobs`: what it says of the @every methods of a project."""

import json
import time
from pathlib import Path

import pytest
from msgspec.structs import replace

from pyspider_lite.cli import jobs_view
from pyspider_lite.database import connect_projectdb, connect_taskdb
from pyspider_lite.models.project import CronJob, JobState, Project, ProjectState

NOW = 1_700_000_100.0
PROJECT = Project(name="shop", status="RUNNING", updatetime=1_600_000_000.0, generation="g")
NIGHTLY = JobState(CronJob("nightly", cron="0 2 * * *", tz="Asia/Shanghai", max_instances=1), missed=0)
OFTEN = JobState(
    CronJob("often", every=600), 1_699_999_800, 1_699_999_803.5, "no good", 2, 1_699_999_200, "made up for by the next"
)
STATE = ProjectState(project="shop", generation="g", jobs=[NIGHTLY, OFTEN], last_tick=1_699_999_800)


@pytest.fixture(autouse=True)
def utc(monkeypatch, tmp_path):
    """In a folder of its own, in UTC."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def test_next_last_and_missed_runs():
    assert list(jobs_view.as_lines(jobs_view.as_records(PROJECT, STATE, NOW))) == [
        "nightly: cron 0 2 * * * Asia/Shanghai",
        "  next run: 2023-11-15 18:00:00 +0000",
        "  last run: none",
        "  missed: 0",
        "often: each 600 s",
        "  next run: 2023-11-14 22:20:00 +0000",
        "  last run: 2023-11-14 22:10:00 +0000, ended 2023-11-14 22:10:03 +0000, failed: no good",
        "  missed: 2, the last 2023-11-14 22:00:00 +0000, made up for by the next",
    ]


@pytest.mark.parametrize(
    ("project", "state", "now", "shown"),
    [
        (PROJECT, STATE, NOW, "2023-11-14 22:20:00 +0000"),
        # it passed, and no scheduler entered it
        (PROJECT, STATE, NOW + 3_600, "2023-11-14 23:10:00 +0000, as soon as a scheduler runs"),
        # the project was changed after that: whoever leads next begins there
        (replace(PROJECT, updatetime=NOW + 3_000), STATE, NOW + 3_050, "2023-11-14 23:10:00 +0000"),
        (replace(PROJECT, status="STOP"), STATE, NOW, "never, the project is STOP"),
    ],
)
def test_the_next_run(project, state, now, shown):
    assert jobs_view.as_records(project, state, now)[1]["next run"] == shown


def test_another_project_of_that_name_has_no_jobs():
    assert jobs_view.as_records(replace(PROJECT, generation="h"), STATE, NOW) == []


def test_the_command(command):
    Path("data").mkdir()
    projectdb, taskdb = (
        connect_projectdb("sqlite+projectdb:///data/project.db"),
        connect_taskdb("sqlite+taskdb:///data/task.db"),
    )
    projectdb.insert(Project(name="shop", status="RUNNING"))
    projectdb.insert(Project(name="idle"))
    generation = projectdb.get("shop").generation
    with taskdb.begin(None) as tx:
        tx.put_project_states([replace(STATE, generation=generation)])
    for database in (projectdb, taskdb):
        database.close()
    assert command("project", "jobs", "shop").out.startswith("nightly: cron 0 2 * * * Asia/Shanghai\n  next run: ")
    lines = command("project", "jobs", "shop", "--format", "jsonl").out.splitlines()
    assert [json.loads(line)["job"] for line in lines] == ["nightly", "often"]
    assert command("project", "jobs", "idle").out.startswith("no jobs are known of idle;")
    assert command("project", "jobs", "idle", "--format", "jsonl").out == ""
    assert command("project", "jobs", "shpo").err == "pyspider_lite: there is no project shpo; did you mean shop?\n"
