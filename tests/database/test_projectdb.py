"""What every projectdb must do: the contract `ProjectDB`, on each backend."""

import math
import time
from types import SimpleNamespace

import pytest

from pyspider_lite.database.base import ProjectDB
from pyspider_lite.errors import DataError
from pyspider_lite.models.project import Project, ProjectStatus


@pytest.mark.behaviour("S7")
def test_a_project_is_read_back_whole(projectdb: ProjectDB) -> None:
    before = time.time()
    project = Project(
        name="shop", group="a, b", status="RUNNING", script="# 标 😀\n" * 9000, comments="c", rate=0.5, burst=7
    )
    projectdb.insert(project)
    found = projectdb.get("shop")
    assert found is not None
    assert (found.name, found.group, found.status, found.script) == ("shop", "a, b", "RUNNING", project.script)
    assert (found.comments, found.rate, found.burst) == ("c", 0.5, 7.0)
    assert before <= found.updatetime <= time.time()
    assert len(found.generation) >= 16


def test_a_generation_that_is_given_stays(projectdb: ProjectDB) -> None:
    projectdb.insert(Project(name="a", generation="mine"))
    projectdb.insert(Project(name="b"))
    projectdb.insert(Project(name="c"))
    generations = [head.generation for head in projectdb.heads()]
    assert generations[0] == "mine"
    assert len(set(generations)) == 3


@pytest.mark.parametrize("rate", [math.inf, 0.0, 0.001, 1e6])
def test_rates_survive(projectdb: ProjectDB, rate: float) -> None:
    projectdb.insert(Project(name="a", rate=rate, burst=rate))
    projectdb.insert(Project(name="b"))
    projectdb.update("b", rate=rate, burst=rate)
    assert [(head.rate, head.burst) for head in projectdb.heads()] == [(rate, rate)] * 2


def test_unknown_projects(projectdb: ProjectDB) -> None:
    assert projectdb.get("no") is None
    assert projectdb.update("no", status="STOP") is False
    projectdb.drop("no")
    assert (projectdb.heads(), projectdb.stamp()) == ([], (0, 0.0))


@pytest.mark.parametrize("name", ["shop", "SHOP", "", "a" * 65, "a-b", "商店", "projectdb", "sqlite_x", "a\n"])
def test_names_that_are_refused(projectdb: ProjectDB, name: str) -> None:
    projectdb.insert(Project(name="shop"))
    with pytest.raises(DataError):
        projectdb.insert(Project(name=name))
    assert projectdb.stamp()[0] == 1


@pytest.mark.behaviour("X-S14")
def test_every_update_is_later_than_the_one_before(projectdb: ProjectDB) -> None:
    projectdb.insert(Project(name="shop"))
    stamps = [projectdb.stamp()]
    for status in (ProjectStatus.DEBUG, ProjectStatus.RUNNING, ProjectStatus.STOP):
        assert projectdb.update("shop", status=status, group="g", script="s", comments="c") is True
        stamps.append(projectdb.stamp())
    assert stamps == sorted(set(stamps))
    found = projectdb.get("shop")
    assert found is not None
    assert (found.status, found.group, found.script, found.comments) == ("STOP", "g", "s", "c")


@pytest.mark.behaviour("X-X3")
def test_what_cannot_be_updated_is_named(projectdb: ProjectDB) -> None:
    projectdb.insert(Project(name="shop"))
    with pytest.raises(DataError, match="colour, updatetime"):
        projectdb.update("shop", updatetime=1.0, colour=1)


@pytest.mark.behaviour("X-S14")
def test_the_stamp_sees_what_a_slow_clock_writes(projectdb: ProjectDB, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stop must be seen in the scheduler's next look, whichever machine it is written on."""
    projectdb.insert(Project(name="written-by-a-fast-clock".replace("-", "_")))
    monkeypatch.setattr("pyspider_lite.database.projectdb.time", SimpleNamespace(time=lambda: 1_700_000_000.0))
    projectdb.insert(Project(name="shop"))
    stamps = [projectdb.stamp()]
    for status in (ProjectStatus.RUNNING, ProjectStatus.STOP):
        assert projectdb.update("shop", status=status)
        stamps.append(projectdb.stamp())
    assert len(set(stamps)) == 3


@pytest.mark.behaviour("X-S15")
def test_a_project_of_another_generation_is_not_dropped(projectdb: ProjectDB) -> None:
    projectdb.insert(Project(name="a", generation="new"))
    projectdb.drop("a", "old")
    assert projectdb.get("a") is not None
    projectdb.drop("a", "new")
    assert projectdb.get("a") is None


@pytest.mark.behaviour("X-S14")
def test_the_stamp_sees_drops_and_other_connections(projectdb: ProjectDB) -> None:
    copy = projectdb.copy()
    projectdb.insert(Project(name="a"))
    projectdb.insert(Project(name="b"))
    before = copy.stamp()
    projectdb.drop("a")
    assert copy.stamp() != before
    assert [head.name for head in copy.heads()] == ["b"]
    copy.close()
