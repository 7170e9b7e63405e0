"""Which projects have a table in a taskdb or resultdb, and that each is made or completed before its first use."""

import re
from collections.abc import Callable
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.schema import DropTable

from pyspider_lite.database.dialect import NAME_LIMITS
from pyspider_lite.database.engine import Database
from pyspider_lite.errors import DatabaseError, DataError

T = TypeVar("T")

#: pyspider let letters of other scripts pass (behaviour D13); our own tables have a hyphen
_PROJECT = re.compile(r"\w{1,64}")


class ProjectTables:
    """The tables of projects in one database; ``complete`` makes the one of a project or adds what it lacks."""

    def __init__(self, database: Database, prefix: str, complete: Callable[[sa.Connection, str], None]) -> None:
        self._database = database
        self._prefix = prefix
        self._complete = complete
        self._opened: set[str] = set()
        self._lost = 0

    def name(self, project: str) -> str:
        """The name of a project's table."""
        return f"{self._prefix}{project}"

    def projects(self) -> set[str]:
        """The projects that have a table."""
        with self._database.read() as conn:
            tables = sa.inspect(conn).get_table_names()
        names = {table.removeprefix(self._prefix) for table in tables if table.startswith(self._prefix)}
        return {name for name in names if _PROJECT.fullmatch(name) and name != "projectdb"}

    def open(self, *projects: str) -> None:
        """Make or complete the projects' tables, unless that was done here before; all in one transaction."""
        if self._lost != self._database.lost_tables:
            self._lost = self._database.lost_tables
            self.forget()
        closed = [project for project in projects if project not in self._opened]
        for project in closed:
            if len(self.name(project)) > NAME_LIMITS[self._database.dialect]:
                raise DataError(
                    f"{self.name(project)}: too long for the name of a table; choose a shorter project name"
                )
        if closed:
            with self._database.change_tables() as conn:
                for project in closed:
                    self._complete(conn, project)
            self._opened.update(closed)

    def is_open(self, project: str) -> bool:
        """Whether the project has a table, for use inside a transaction: there it cannot be completed any more."""
        if project in self._opened:
            return True
        if self._exists(project):
            raise DatabaseError(f"project {project}: open_project must come before the transaction")
        return False

    def inherit(self, other: "ProjectTables") -> None:
        """What ``other`` opened in the same database is open here too."""
        self._opened |= other._opened

    def drop(self, conn: sa.Connection, project: str) -> None:
        """Drop the project's table, inside the caller's transaction."""
        self._opened.discard(project)
        conn.execute(DropTable(sa.Table(sa.quoted_name(self.name(project), quote=True), sa.MetaData()), if_exists=True))

    def forget(self) -> None:
        """Look at every table again before its next use."""
        self._opened.clear()

    def read(self, project: str, query: Callable[[sa.Connection], T], nothing: T) -> T:
        """What ``query`` finds, or ``nothing`` if the project has no table (behaviour D16)."""
        if project not in self._opened:
            if not self._exists(project):
                return nothing
            self.open(project)
        try:
            with self._database.read() as conn:
                return query(conn)
        except DatabaseError:
            if self._exists(project):
                raise
            # another process dropped it
            self._opened.discard(project)
            return nothing

    def _exists(self, project: str) -> bool:
        with self._database.read() as conn:
            return sa.inspect(conn).has_table(self.name(project))
