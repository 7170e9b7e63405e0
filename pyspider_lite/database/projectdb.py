"""The projectdb in SQL (`ProjectDB` of the contract): one table of projects and their scripts (behaviour D13, D25, D30)."""

import math
import secrets
import time
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa

from pyspider_lite.database import schema
from pyspider_lite.database.engine import Database
from pyspider_lite.database.names import verify_project_name
from pyspider_lite.database.schema import PROJECTS
from pyspider_lite.database.url import Target
from pyspider_lite.errors import DataError
from pyspider_lite.models.project import Project, ProjectHead, ProjectStatus

#: how ``inf`` is stored: MySQL has no infinity
_UNLIMITED = -1.0
#: the least step of updatetime; pyspider's MySQL columns keep four digits
_STEP = 0.001

_c = PROJECTS.c
#: the sum rather than the newest: a machine whose clock is ahead must not hide the changes of others (X-S14). Of whole numbers, which
#: add up exactly; `_STEP` is ten of them
_STAMP = sa.select(
    sa.func.count(), sa.func.sum(sa.cast(sa.func.coalesce(_c.updatetime, 0) * 10_000, sa.BigInteger))
).select_from(PROJECTS)
_HEADS = sa.select(_c.name, _c.group, _c.status, _c.rate, _c.burst, _c.updatetime, _c.generation).order_by(_c.name)
_GET = sa.select(
    *(_c.name, _c.group, _c.status, _c.rate, _c.burst, _c.updatetime, _c.generation, _c.script, _c.comments)
).where(_c.name == sa.bindparam("key"))
_SIMILAR = sa.select(_c.name).where(sa.func.lower(_c.name) == sa.bindparam("lower"))
_UPDATETIME = sa.select(_c.updatetime).where(_c.name == sa.bindparam("key")).with_for_update()
_CHANGEABLE = frozenset({"group", "status", "script", "comments", "rate", "burst", "generation"})


def _prepare(conn: sa.Connection) -> None:
    schema.ensure(conn, PROJECTS)


class SqlProjectDB:
    """See `ProjectDB`."""

    def __init__(self, target: Target, database: Database | None = None) -> None:
        self._target = target
        self._database = database or Database(target, _prepare, durable=True)

    def stamp(self) -> tuple[int, float]:
        with self._database.read() as conn:
            count, total = self._database.fetch(conn, _STAMP)[0]
        return count, int(total or 0)

    def heads(self) -> list[ProjectHead]:
        with self._database.read() as conn:
            return [ProjectHead(**_head(row)) for row in self._database.fetch(conn, _HEADS)]

    def get(self, name: str) -> Project | None:
        with self._database.read() as conn:
            rows = self._database.fetch(conn, _GET, {"key": name})
        if not rows:
            return None
        script = rows[0].script
        if isinstance(script, bytes):
            script = script.decode("utf-8", "replace")
        return Project(**_head(rows[0]), script=script or "", comments=rows[0].comments)

    def insert(self, project: Project) -> None:
        if not verify_project_name(project.name):
            raise DataError(
                f"a project's name is 1 to 64 letters, digits or _ and no reserved word: {project.name[:80]!r}"
            )
        columns = {
            "name": project.name,
            "group": project.group,
            "status": str(project.status),
            "script": project.script,
            "comments": project.comments,
            "rate": _stored_rate(project.rate),
            "burst": _stored_rate(project.burst),
            "updatetime": time.time(),
            "generation": project.generation or secrets.token_hex(8),
        }
        with self._database.write() as conn:
            # some databases take no two tables whose names differ in case only
            taken = self._database.fetch(conn, _SIMILAR, {"lower": project.name.lower()})
            if taken:
                raise DataError(f"project {taken[0].name} exists already")
            self._database.write_many(conn, sa.insert(PROJECTS), [columns], f"project {project.name}")

    def update(self, name: str, **fields: object) -> bool:
        if unknown := fields.keys() - _CHANGEABLE:
            raise DataError(f"project {name}: these cannot be changed: {', '.join(sorted(unknown))}")
        columns: dict[str, Any] = dict(fields)
        columns.update((key, _stored_rate(columns[key])) for key in ("rate", "burst") if key in columns)
        if "status" in columns:
            columns["status"] = str(columns["status"])
        with self._database.write() as conn:
            rows = self._database.fetch(conn, _UPDATETIME, {"key": name})
            if not rows:
                return False
            columns["updatetime"] = max(time.time(), (rows[0].updatetime or 0.0) + _STEP)
            change = sa.update(PROJECTS).where(PROJECTS.c.name == sa.bindparam("key"))
            change = change.values({column: sa.bindparam(f"new_{column}") for column in columns})
            values = {f"new_{column}": value for column, value in columns.items()}
            self._database.write_many(conn, change, [{"key": name, **values}], f"project {name}")
            return True

    def drop(self, name: str, generation: str | None = None) -> None:
        rows = sa.delete(PROJECTS).where(_c.name == name)
        if generation is not None:
            rows = rows.where(sa.func.coalesce(_c.generation, "") == generation)
        with self._database.write() as conn:
            self._database.execute(conn, rows)

    def copy(self) -> "SqlProjectDB":
        return SqlProjectDB(self._target, self._database.copy())

    def close(self) -> None:
        self._database.close()


def _stored_rate(rate: Any) -> float:
    return _UNLIMITED if rate == math.inf else float(rate)


def _read_rate(rate: float | None) -> float:
    # a column that is missing or NULL is 0 (behaviour D45)
    return math.inf if rate is not None and rate < 0 else float(rate or 0.0)


def _head(row: Sequence[Any]) -> dict[str, Any]:
    """The columns of `_HEADS`, with what NULL stands for (behaviour D45)."""
    name, group, status, rate, burst, updatetime, generation, *_ = row
    return {
        "name": name,
        "group": group,
        "status": status or ProjectStatus.TODO.value,
        "rate": _read_rate(rate),
        "burst": _read_rate(burst),
        "updatetime": updatetime or 0.0,
        "generation": generation or "",
    }
