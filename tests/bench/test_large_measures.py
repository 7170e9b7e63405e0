"""The measures of large tables and large callbacks, each once and tiny: that they measure, and that they notice what is wrong."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pyspider_lite import configuration
from pyspider_lite.bench import filling
from pyspider_lite.bench.measures import idle, projects, rates, rows, submit
from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.bench.suite import ALL, Suite, SuiteEnded
from pyspider_lite.database import connect_taskdb
from pyspider_lite.models.project import Project


def test_the_table_is_filled_with_rows_like_those_that_are_written(tmp_path: Path) -> None:
    options = configuration.load(None, {"data_path": str(tmp_path)}, {}).settings
    project = Project(name="p", generation="g")
    for first, end in ((0, 50), (50, 200)):
        filling.fill(options, None, project, first, end)
    taskdb = connect_taskdb(options.taskdb)
    assert taskdb.status_count("p") == {1: 200}
    assert (taskdb.project_states()["p"].active, taskdb.project_states()["p"].generation) == (200, "g")
    # in their order, and all due
    keys = taskdb.refill("p", taskdb.time(), 1000).keys
    assert [key.taskid for key in keys[50:]] == [filling.task(project, index).taskid for index in range(50, 200)]
    assert [key.seq for key in keys] == list(range(1, 201))
    taskdb.close()


def test_a_row_that_is_not_like_them_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = configuration.load(None, {"data_path": str(tmp_path)}, {}).settings
    monkeypatch.setattr(filling, "_COLUMNS", tuple(name for name in filling._COLUMNS if name != "process"))
    with pytest.raises(ValueError, match="differs from one that was written"):
        filling.fill(options, None, Project(name="p"), 0, 10)


def test_mariadb_has_all_its_indexes_again(tmp_path: Path) -> None:
    with MariaDb() as server:
        urls = {kind: server.url(kind) for kind in ("taskdb", "projectdb", "resultdb")}
        options = configuration.load(None, {"data_path": str(tmp_path), **urls}, {}).settings
        made = []
        for first, end in ((0, 1), (1, 300)):
            filling.fill(options, server, Project(name="p"), first, end)
            made.append(server.execute("show create table taskdb.p")[0][1].partition(" ENGINE")[0])
        taskdb = connect_taskdb(options.taskdb)
        assert taskdb.status_count("p") == {1: 300}
        taskdb.open_project("fresh")
        taskdb.close()
        fresh = server.execute("show create table taskdb.fresh")[0][1].partition(" ENGINE")[0]
    assert made[0] == made[1]
    # but for the names of the indexes, which have the table's in them
    assert [line.partition("(")[2] for line in made[1].splitlines() if "KEY" in line] == [
        line.partition("(")[2] for line in fresh.splitlines() if "KEY" in line
    ]


def test_postgresql_has_all_its_indexes_again(tmp_path: Path) -> None:
    with PostgreSql() as server:
        urls = {kind: server.url(kind) for kind in ("taskdb", "projectdb", "resultdb")}
        options = configuration.load(None, {"data_path": str(tmp_path), **urls}, {}).settings

        def indexes(table: str) -> list[str]:
            query = f"select indexdef from pg_indexes where tablename = '{table}'"
            return sorted(row[0].replace(table, "") for row in server.execute(query, database="taskdb"))

        made = []
        for first, end in ((0, 1), (1, 300)):
            filling.fill(options, server, Project(name="many"), first, end)
            made.append(indexes("many"))
        taskdb = connect_taskdb(options.taskdb)
        assert taskdb.status_count("many") == {1: 300}
        taskdb.open_project("fresh")
        taskdb.close()
        assert made[0] == made[1] == indexes("fresh") and len(made[0]) > 2


def test_rows(tmp_path: Path) -> None:
    figures = rows.measure(tmp_path, "sqlite", 2_000)
    assert figures["problems"] == ""
    assert (figures["tenth"]["open"], figures["whole"]["open"]) == (200, 2_000)
    for look in (figures["tenth"], figures["whole"]):
        assert 0 < look["ready_s"] < look["first_dispatch_s"] and look["dispatched"] >= look["inserted"] == 100
    assert figures["compared"]["rss_mb"] > 0.5


def test_submit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(submit, "_BEFORE", 1.0)
    figures = submit.measure(tmp_path, ALL, 3_000)
    assert figures["problems"] == ""
    assert {"scheduler", "processor", "script"} <= figures["peak_mb"].keys() and figures["other_before_per_s"] > 1


@pytest.mark.parametrize(
    "measure", [lambda folder: rates.measure(folder, ALL, 1.0), lambda folder: submit.measure(folder, ALL, 100)]
)
def test_a_dead_suite_has_no_figures(
    measure: Callable[[Path], Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It uses no CPU, and nothing is fetched twice."""
    monkeypatch.setattr(submit, "_STANDSTILL", 1.0)
    monkeypatch.setattr(rates, "RATES", (10.0,))
    monkeypatch.setattr(Suite, "push", lambda suite, *words: suite.roots[0].kill())
    with pytest.raises(SuiteEnded, match=r"^`all` ended by itself with exit code -9"):
        measure(tmp_path)


def test_an_idle_suite_that_is_dead_is_not_the_cheapest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idle, "_settle", lambda suite, _: not suite.roots[0].kill())
    with pytest.raises(SuiteEnded):
        idle.measure(tmp_path, ALL, 0, {}, 0.5)


def test_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(projects, "_SETTLE", 1.0)
    figures = projects.measure(tmp_path, 6, 500, 1.0)
    assert figures["problems"] == ""
    assert 0 < figures["first_page_p50_s"] <= figures["first_page_max_s"] and figures["large_done"]
