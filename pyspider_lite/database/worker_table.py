"""The table of workers in the taskdb: who is in the cluster, as the leader heard it. Written by the scheduler's `roster`, read by
`cluster list`. `SqlTaskDB` hands it the connections; `peek` is for `check-config`, which may make nothing."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import sqlalchemy as sa

from pyspider_lite.codec import from_json, to_json
from pyspider_lite.database.base import Leader
from pyspider_lite.database.dialect import KEY, TEXT, TIME, clock, key_in, upsert
from pyspider_lite.database.engine import Database
from pyspider_lite.database.names import store_key
from pyspider_lite.database.schema import LEADER
from pyspider_lite.database.task_rows import chunks
from pyspider_lite.database.url import Target
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.worker import Beat, WorkerRow

WORKERS = sa.Table(
    "lite-worker",
    sa.MetaData(),
    sa.Column("id", KEY, primary_key=True),
    sa.Column("beat", TEXT, nullable=False),
    sa.Column("seen", TIME, nullable=False),
    sa.Column("rate", TIME, nullable=False),
    mysql_engine="InnoDB",
    mysql_charset="utf8mb4",
    mysql_collate="utf8mb4_bin",
)


class WorkerTable:
    """The statements over the table; every method takes a connection of ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._all = sa.select(WORKERS.c.beat, WORKERS.c.seen, WORKERS.c.rate)
        self._put = upsert(database.dialect, WORKERS, ["id"], ["id", "beat", "seen", "rate"])
        self._drop = sa.delete(WORKERS).where(key_in(WORKERS.c.id))

    def put(self, conn: sa.Connection, rows: Sequence[WorkerRow]) -> None:
        """Write these rows over what is there."""
        self._database.write_many(conn, self._put, [_row(row) for row in rows], "workers")

    def all(self, conn: sa.Connection) -> list[WorkerRow]:
        """All rows, in no order; one that this version cannot read is left out."""
        found = (_worker(*row) for row in self._database.fetch(conn, self._all))
        return [worker for worker in found if worker is not None]

    def drop(self, conn: sa.Connection, ids: Iterable[str]) -> None:
        """Unknown ids are ignored."""
        for keys in chunks(store_key(worker)[0] for worker in ids):
            self._database.execute(conn, self._drop, {"keys": keys})


def _row(row: WorkerRow) -> dict[str, Any]:
    # which runs it holds is many and changes with every beat; the list is for people
    beat = msgspec.structs.replace(row.beat, holds={}, running=None)
    return {"id": store_key(beat.worker)[0], "beat": to_json(beat), "seen": row.seen, "rate": row.rate}


def _worker(beat: str, seen: float, rate: float) -> WorkerRow | None:
    try:
        return WorkerRow(beat=msgspec.convert(from_json(beat), Beat), seen=seen, rate=rate)
    except msgspec.DecodeError:
        return None


class Seen(NamedTuple):
    """What a taskdb says about its cluster."""

    #: the database's clock
    now: float
    leader: Leader | None
    workers: list[WorkerRow]


def peek(target: Target) -> Seen | None:
    """Read leader and workers without making or changing anything; None while there is no database, or there are no tables of ours.
    Raises DatabaseError."""
    if target.url.drivername == "sqlite" and not os.path.exists(target.path):
        return None
    engine = sa.create_engine(
        _readable(target.url), hide_parameters=True, connect_args=_PEEK[target.url.drivername[:5]]
    )
    try:
        with engine.connect() as conn:
            tables = sa.inspect(conn)
            if not all(tables.has_table(table.name) for table in (LEADER, WORKERS)):
                return None
            now = conn.execute(sa.select(clock(conn.dialect.name))).scalar_one()
            leader = conn.execute(sa.select(*(LEADER.c[name] for name in _LEADER))).first()
            rows = conn.execute(sa.select(WORKERS.c.beat, WORKERS.c.seen, WORKERS.c.rate))
            workers = [worker for worker in (_worker(*row) for row in rows) if worker is not None]
            return Seen(
                now, Leader(**dict(zip(_LEADER, leader, strict=True))) if leader and leader[0] else None, workers
            )
    except sa.exc.SQLAlchemyError as error:
        raise DatabaseError(f"{target.shown}: {' '.join(str(error.args[0]).split())}", target.shown) from None
    finally:
        engine.dispose()


_LEADER = ("epoch", "holder", "until", "rpc")
#: by the beginning of the driver's name
_PEEK: dict[str, dict[str, Any]] = {
    "sqlit": {"timeout": 5},
    "mysql": {"connect_timeout": 5, "read_timeout": 10, "charset": "utf8mb4"},
    "postg": {"connect_timeout": 5},
}


def _readable(url: sa.URL) -> sa.URL:
    """SQLite would make the file."""
    if url.drivername != "sqlite" or not url.database:
        return url
    return url.set(database=Path(url.database).absolute().as_uri(), query={"mode": "ro", "uri": "true"})
