"""The SQL that differs between the servers, as text; the servers themselves run it in the conformance tests."""

import pytest
import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql, sqlite
from sqlalchemy.schema import CreateIndex, CreateTable

from pyspider_lite.database import schema
from pyspider_lite.database.dialect import insert_missing, update_many, upsert
from pyspider_lite.database.engine import ANY_TABLE
from pyspider_lite.database.schema import result_table, task_table
from pyspider_lite.database.task_rows import TaskStatements

DIALECTS = {"mysql": mysql.dialect(), "postgresql": postgresql.dialect(), "sqlite": sqlite.dialect()}


def text(statement: sa.ClauseElement, dialect: str) -> str:
    return " ".join(str(statement.compile(dialect=DIALECTS[dialect])).split())


@pytest.mark.parametrize("dialect", DIALECTS)
def test_what_exists_is_left_alone(dialect: str) -> None:
    sql = text(insert_missing(dialect, task_table("p", dialect), ["taskid"], ["taskid", "url"]), dialect)
    if dialect == "mysql":
        assert sql.endswith("ON DUPLICATE KEY UPDATE taskid = `p`.taskid")
        assert "IGNORE" not in sql
    else:
        assert sql.endswith("ON CONFLICT (taskid) DO NOTHING")


def test_mysql_compares_the_run_before_it_changes_it() -> None:
    table = result_table("p", "mysql")
    columns = ["taskid", "item", "epoch", "run", "result"]
    sql = text(upsert("mysql", table, ["taskid", "item"], columns, newest=["epoch", "run"]), "mysql")
    assignments = sql.partition("ON DUPLICATE KEY UPDATE ")[2]
    # what counts most comes last: the others are compared with both
    assert assignments.index("result = IF(") < assignments.index("run = IF(") < assignments.index("epoch = IF(")
    assert "taskid =" not in assignments


@pytest.mark.parametrize("dialect", ["postgresql", "sqlite"])
def test_the_others_compare_in_a_where(dialect: str) -> None:
    table = result_table("p", dialect)
    sql = text(upsert(dialect, table, ["taskid", "item"], ["taskid", "item", "run", "result"], newest=["run"]), dialect)
    assert sql.endswith('DO UPDATE SET result = excluded.result, run = excluded.run WHERE excluded.run >= "p".run')


@pytest.mark.parametrize("dialect", DIALECTS)
def test_updates_by_key(dialect: str) -> None:
    statement = update_many(dialect, task_table("p", dialect), "taskid", ["status", "track"], keep_null=["track"])
    sql = text(statement, dialect)
    # pymysql sends an UPDATE a row, an INSERT ... ON DUPLICATE KEY in one piece
    assert sql.startswith("INSERT" if dialect == "mysql" else "UPDATE")
    assert "coalesce(" in sql
    assert set(statement.compile(dialect=DIALECTS[dialect]).params) == {"key", "new_status", "new_track"}


@pytest.mark.parametrize("dialect", DIALECTS)
def test_a_statement_for_all_projects_is_what_it_would_be_for_one(dialect: str) -> None:
    made = DIALECTS[dialect]
    tasks, *indexes = schema._new_tasks(made)
    assert tasks.replace(ANY_TABLE, "p") == str(
        CreateTable(task_table("p", dialect, create=True)).compile(dialect=made)
    )
    for purpose, made_for_all, index in zip(
        ("due", "state"), indexes, schema._indexes(task_table("p", dialect), "p", dialect), strict=True
    ):
        sql = made_for_all.replace(ANY_TABLE, "p").replace(f"{{index {purpose}}}", f"lite-{purpose}-p")
        assert sql == str(CreateIndex(index).compile(dialect=made))
    results = schema._new_results(made).replace(ANY_TABLE, "p")
    assert results == str(CreateTable(result_table("p", dialect, create=True)).compile(dialect=made))
    for column, statement in (("url", "newest"), ("status", "end"), ("taskid", "insert")):
        sql = text(getattr(TaskStatements(dialect), statement), dialect)
        assert column in sql
        assert "{" not in sql.replace(ANY_TABLE, "p")
