"""What a database product must tell us about itself: the contract that `sqlite`, `mysql` and `postgresql` fulfil for `engine`;
and what they have in common."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import sqlalchemy as sa
from msgspec import Struct

from pyspider_lite.database.url import Target


class Description(Struct, frozen=True, kw_only=True):
    """What a look at a database found: lines to show, and a sentence for each thing that must be mended before it can be used."""

    found: list[str]
    problems: list[str] = []


class Server(Protocol):
    """One database of one product. ``error`` is always an exception of its driver."""

    def make_engine(self, *, durable: bool) -> sa.Engine:
        """Connections that are made when they are needed; ``durable``: each commit waits for the disk, where we can choose."""
        ...

    def reason(self, error: BaseException) -> str | None:
        """What happened and what to do; None where the driver's own words must do."""
        ...

    def is_unfit(self, error: BaseException, row: dict[str, Any]) -> str | None:
        """Why ``row``, one of those in the statement that failed, can never be stored; None if it is not to blame."""
        ...

    def lost_table(self, error: BaseException) -> bool:
        """Whether it says that a table is missing."""
        ...

    def replaced(self) -> str:
        """What happened to the database under the open connections, "" as long as it is still the one that they have."""
        ...

    def let_go(self) -> None:
        """The connections to what was replaced are closed: nothing of it may get into what is opened next."""
        ...

    def describe(self) -> Description:
        """Connect and look, change nothing; raises the driver's exceptions."""
        ...


def remote_engine(target: Target, connect: Callable[..., Any]) -> sa.Engine:
    """Connections to a server elsewhere, each made by ``connect``, a listener for SQLAlchemy's event `do_connect`."""
    engine = sa.create_engine(
        target.url,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=1,
        # a connection that was cut while it was idle is made anew, without an error
        pool_pre_ping=True,
    )
    sa.event.listen(engine, "do_connect", connect)
    return engine


def about_tables(target: Target, columns: Iterable[Any]) -> list[str]:
    """What the (table, column) pairs of a database say about its projects."""
    tables: dict[str, set[str]] = {}
    for table, column in columns:
        tables.setdefault(table, set()).add(column)
    if target.kind == "projectdb":
        if "projectdb" not in tables:
            return ["no table of projects yet"]
        return ["the table of projects" + ("" if "generation" in tables["projectdb"] else _OLD)]
    projects = {
        table: columns
        for table, columns in tables.items()
        if table.startswith(target.prefix) and "taskid" in columns and "-" not in table
    }
    old = sum("run" not in columns for columns in projects.values())
    return [f"tables of {len(projects)} projects" + (f", {old} of them{_OLD}" if old else "")]


_OLD = " made by pyspider, to be completed at its first use"
