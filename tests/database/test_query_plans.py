"""With 1,000,000 tasks and results every hot query walks an index. The SQL is caught as our code sends it."""

import re
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any

import pytest
import sqlalchemy as sa

from pyspider_lite.bench.servers.mariadb import MariaDb
from pyspider_lite.bench.servers.postgresql import PostgreSql
from pyspider_lite.database import connect_resultdb, connect_taskdb
from pyspider_lite.database.inspection import Inspection
from pyspider_lite.database.resultdb import SqlResultDB
from pyspider_lite.database.taskdb import SqlTaskDB
from pyspider_lite.models.control import Control
from pyspider_lite.models.project import ProjectState
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult
from pyspider_lite.models.task import NewTask, TaskEnd, TaskStatus

P = "shop"
ROWS = 1_000_000
CONTROLS = 100_000

#: the numbers 1 to N as column i
_NUMBERS = {
    "sqlite": "(WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {0}) SELECT i FROM n) AS s",
    "mysql": "(SELECT seq AS i FROM seq_1_to_{0}) AS s",
    "postgresql": "generate_series(1, {0}) AS s(i)",
}
_KEY = {
    "sqlite": "printf('%032x', i)",
    "mysql": "lower(lpad(hex(i), 32, '0'))",
    "postgresql": "lpad(to_hex(i), 32, '0')",
}


_TASK = '{"taskid": "t", "project": "shop", "url": "u"}'


def taskid(number: int) -> str:
    return f"{number:032x}"


def fill(database: Any, statement: str, count: int = ROWS) -> None:
    """Rows made by the server itself."""
    dialect = database._database.dialect
    with database._database.write() as conn:
        quoted = [conn.dialect.identifier_preparer.quote_identifier(name) for name in (P, "lite-control")]
        names = dict(zip(("p", "control"), quoted, strict=True))
        sql = statement.format(key=_KEY[dialect], numbers=_NUMBERS[dialect].format(count), json=f"'{_TASK}'", **names)
        conn.exec_driver_sql(sql)


@pytest.fixture(scope="module", params=["sqlite", "mariadb", "postgresql"])
def databases(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[SqlTaskDB, SqlResultDB]]:
    if request.param == "sqlite":
        folder = tmp_path_factory.mktemp("plans")
        urls = [f"sqlalchemy+sqlite+{kind}:///{folder}/{kind}.db" for kind in ("taskdb", "resultdb")]
    else:
        server: MariaDb | PostgreSql = request.getfixturevalue(request.param)
        for kind in ("taskdb", "resultdb"):
            server.execute(f"create database plans_{kind}")
        urls = [server.url(kind, f"plans_{kind}") for kind in ("taskdb", "resultdb")]
    tasks, results = connect_taskdb(urls[0]), connect_resultdb(urls[1])
    assert isinstance(tasks, SqlTaskDB)
    assert isinstance(results, SqlResultDB)
    tasks.open_project(P)
    with tasks._database.write() as conn:
        for purpose in ("due", "state"):
            name = conn.dialect.identifier_preparer.quote_identifier(f"lite-{purpose}-{P}")
            conn.exec_driver_sql(f"DROP INDEX {name}" + (f" ON {P}" if request.param == "mariadb" else ""))
    results.store([TaskResult(project=P, taskid="first", url="u", run=0, items=[Item("", "1")])])
    # half of them wait, in four priorities, each due at another time
    fill(
        tasks,
        "INSERT INTO {p} (taskid, project, url, status, schedule, updatetime, due, priority) "
        "SELECT {key}, 'shop', 'http://x/', 1 + (i & 1), {json}, 1.0, "
        "CASE WHEN i & 1 = 0 THEN i ELSE NULL END, (i >> 1) & 3 FROM {numbers}",
    )
    # the indexes are built when the table is opened, as with a table of pyspider's: much faster than row by row
    opener = connect_taskdb(urls[0])
    opener.open_project(P)
    opener.close()
    fill(
        tasks,
        "INSERT INTO {control} (id, project, kind, generation, task, created) "
        "SELECT {key}, 'shop', 'cron', '', {json}, 1.0 FROM {numbers}",
        CONTROLS,
    )
    fill(
        results,
        "INSERT INTO {p} (taskid, url, result, updatetime, item, run) "
        "SELECT {key}, 'http://x/', '1', 1.0, '', 0 FROM {numbers}",
    )
    if request.param != "sqlite":
        for database, tables in ((tasks, [P, "lite-control"]), (results, [P])):
            with database._database.write() as conn:
                for table in tables:
                    quoted = conn.dialect.identifier_preparer.quote_identifier(table)
                    conn.exec_driver_sql(("ANALYZE " if request.param == "postgresql" else "ANALYZE TABLE ") + quoted)
    yield tasks, results
    tasks.close()
    results.close()
    if request.param != "sqlite":
        for kind in ("taskdb", "resultdb"):
            server.execute(f"drop database plans_{kind}")


@contextmanager
def sent(database: Any) -> Iterator[list[tuple[str, Any]]]:
    """The statements that are sent, with the parameters of one row each."""
    found: list[tuple[str, Any]] = []

    def listen(_conn: Any, _cursor: Any, statement: str, parameters: Any, _context: Any, many: bool) -> None:
        found.append((statement, parameters[0] if many else parameters))

    engine = database._database._engine
    sa.event.listen(engine, "before_cursor_execute", listen)
    try:
        yield found
    finally:
        sa.event.remove(engine, "before_cursor_execute", listen)


def trouble(dialect: str, steps: list[Any]) -> list[str]:
    """The steps of a plan that read a whole table, or sort much."""
    if dialect == "sqlite":
        return [row[3] for row in steps if re.search(r"^SCAN (?!CONSTANT)|TEMP B-TREE", row[3])]
    if dialect == "postgresql":
        return [row[0] for row in steps if re.search(r"Seq Scan|Sort", row[0])]
    # id, select_type, table, type, possible_keys, key, key_len, ref, rows, Extra
    return [
        str(row) for row in steps if row[3] in ("ALL", "index") or ("filesort" in str(row[9]) and int(row[8]) > 1000)
    ]


def plans_are_good(database: Any, statements: list[tuple[str, Any]], big: tuple[str, ...], index: str = "") -> set[str]:
    """Explain those of the statements that look for rows in a ``big`` table; which kinds there were."""
    seen: set[str] = set()
    dialect = database._database.dialect
    quote = "`" if dialect == "mysql" else '"'
    with database._database.read() as conn:
        for statement, parameters in statements:
            kind = statement.split()[0]
            if kind not in ("SELECT", "UPDATE", "DELETE") or not any(
                f"{quote}{table}{quote}" in statement for table in big
            ):
                continue
            seen.add(kind)
            explain = "EXPLAIN QUERY PLAN" if dialect == "sqlite" else "EXPLAIN"
            steps = list(conn.exec_driver_sql(f"{explain} {statement}", parameters))
            assert trouble(dialect, steps) == [], f"{statement[:400]}: {steps}"
            assert index in str(steps)
    return seen


def test_refill(databases: tuple[SqlTaskDB, SqlResultDB]) -> None:
    tasks, _ = databases
    now = ROWS * 0.75
    with sent(tasks) as statements:
        answer = tasks.refill(P, now, 1000)
    assert [key.priority for key in answer.keys] == [3] * 1000
    assert answer.keys[0].due == 6.0
    assert now < answer.next_due <= now + 8
    assert plans_are_good(tasks, statements, (P,)) == {"SELECT"}
    began, spent = time.perf_counter(), time.process_time()
    for _ in range(10):
        tasks.refill(P, now, 1000)
    taken, cpu = (time.perf_counter() - began) * 100, (time.process_time() - spent) * 100
    print(f"refill of 1,000 among {ROWS:,} tasks on {tasks._dialect}: {taken:.1f} ms, {cpu:.1f} ms of CPU here")


def test_what_a_commit_reads_and_writes(databases: tuple[SqlTaskDB, SqlResultDB]) -> None:
    tasks, _ = databases
    ids = [taskid(number) for number in range(1, ROWS, ROWS // 600)]
    with sent(tasks) as statements, tasks.begin(None) as tx:
        assert len(tx.states(P, ids)) == len(ids)
        tx.end(P, [
            TaskEnd(taskid=i, status=TaskStatus.SUCCESS, schedule={}, due=None, priority=0, run=1, updatetime=2.0,
                    lastcrawltime=2.0, track=None) for i in ids[:200]
        ])  # fmt: skip
        tx.postpone(P, [NewTask(taskid=i, project=P, url="u") for i in ids[200:400]])
        tx.add_controls([Control(id="c", project=P, kind="cron", task=NewTask(taskid="c", project=P, url="u"))])
        assert tx.existing_controls([*ids[:10], "c"])
        tx.waiting_controls(P, "g", ["start", "message"], 5)
        tx.delete_controls([taskid(5), "c"])
        tx.project_states([P])
        tx.put_project_states([ProjectState(project=P)])
    kinds = plans_are_good(tasks, statements, (P, "lite-control"))
    # MySQL updates by upserts
    assert kinds == ({"SELECT", "DELETE"} if tasks._dialect == "mysql" else {"SELECT", "UPDATE", "DELETE"})
    # nor is there a statement a row
    assert len(statements) < 20


def test_pages_of_tasks_and_controls(databases: tuple[SqlTaskDB, SqlResultDB]) -> None:
    tasks, _ = databases
    with sent(tasks) as statements:
        _, page = tasks.select(P, limit=100), tasks.select(P, limit=100, after=ROWS // 2)
        assert len(page) == 100
        tasks.get(P, [taskid(number) for number in range(1, 100)])
        assert len(tasks.controls(0, 100)) == 100
        assert tasks.controls(CONTROLS - 10, 1000)
        assert len(tasks.control_heads(0, 100)) == 100
        heads = tasks.project_control_heads(P, "g", "cron", 0, 500)
        assert len(heads) == len(tasks.control_rows(head.id for head in heads)) == 500
    assert plans_are_good(tasks, statements, (P, "lite-control")) == {"SELECT"}


@pytest.mark.parametrize("status", TaskStatus)
def test_pages_of_tasks_in_one_state(databases: tuple[SqlTaskDB, SqlResultDB], status: TaskStatus) -> None:
    """Also of a state that no task is in."""
    tasks, _ = databases
    # the others look at their statistics, and take the primary key for what is frequent
    index = "lite-state-shop" if tasks._dialect == "sqlite" else ""
    with sent(tasks) as statements:
        tasks.select(P, status=status, limit=100)
        tasks.select(P, status=status, limit=100, after=ROWS // 2)
    assert plans_are_good(tasks, statements, (P,), index) == {"SELECT"}


def test_results(databases: tuple[SqlTaskDB, SqlResultDB]) -> None:
    _, results = databases
    ids = [taskid(number) for number in range(1, ROWS, ROWS // 300)]
    with sent(results) as statements:
        results.store([
            TaskResult(project=P, taskid=i, url="u", run=1, items=[Item("x", "2")], replace=True) for i in ids
        ])  # fmt: skip
        assert [row.item for row in results.get(P, ids[0])] == ["x"]
        rows = results.select(P)
        for _ in range(250):
            next(rows)
        assert next(results.select(P, offset=1000, limit=1))
    assert plans_are_good(results, statements, (P,)) == {"SELECT", "DELETE"}


def test_what_doctor_looks_at(databases: tuple[SqlTaskDB, SqlResultDB]) -> None:
    tasks, _ = databases
    with closing(Inspection(tasks._target)) as inspection:
        with sent(inspection) as counting:
            began = time.perf_counter()
            compared = inspection.compare(P, 100_000)
            taken = time.perf_counter() - began
        assert compared.found == {"active": 100_001, "success": 100_001, "failed": 0, "bad": 0}
        with sent(inspection) as statements:
            assert inspection.without_due(P) == []
            assert inspection.broken(P, 500) == []
            assert len(inspection.due(P, ROWS * 0.75, 1000)) == 1000
            assert len(inspection.controls(1000)) == 1000
        # the newest rows are a walk along the primary key, which may be called a scan
        by_index = [pair for pair in statements if not re.search(r"(seq|rowid) DESC", pair[0].replace('"', ""))]
        assert plans_are_good(tasks, by_index, (P, "lite-control")) == {"SELECT"}
        if tasks._dialect != "postgresql":  # takes the first rows of the table where a state is frequent
            ((statement, parameters),) = (pair for pair in counting if pair[0].startswith("SELECT"))
            with inspection._database.read() as conn:
                explain = "EXPLAIN QUERY PLAN" if tasks._dialect == "sqlite" else "EXPLAIN"
                plan = str(list(conn.exec_driver_sql(f"{explain} {statement}", parameters)))
            assert plan.count("lite-state-shop") >= 5
            assert not re.search(r"SCAN shop|'shop', '(ALL|index)'", plan)
    print(f"100,000 of each state counted among {ROWS:,} tasks on {tasks._dialect}: {taken * 1000:.0f} ms")
