"""The table of dead letters in the taskdb: what was given up, with its payload and the reason. Written by the scheduler, read and purged
by `dead-letter`. `SqlTaskDB` hands it the connections."""

from collections.abc import Sequence
from typing import Any

import msgspec
import sqlalchemy as sa

from pyspider_lite.database.dialect import key_in
from pyspider_lite.database.engine import Database
from pyspider_lite.database.schema import DEAD_LETTER
from pyspider_lite.models.letter import DeadLetter, LetterCount

_FIELDS = tuple(field.name for field in msgspec.structs.fields(DeadLetter))
_WRITTEN = tuple(name for name in _FIELDS if name != "seq")
#: rows dropped in one transaction
PAGE = 500

_c = DEAD_LETTER.c


class LetterTable:
    """The statements over the table; every method takes a connection of ``database``."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._add = sa.insert(DEAD_LETTER).values({name: sa.bindparam(name) for name in (*_WRITTEN, "kept")}).inline()
        self._drop = sa.delete(DEAD_LETTER).where(key_in(_c.seq))
        self._total = sa.select(sa.func.count(), sa.func.coalesce(sa.func.sum(_c.kept), 0)).select_from(DEAD_LETTER)
        self._oldest = sa.select(_c.seq, _c.time, _c.kept).order_by(_c.seq).limit(PAGE)
        self._count = sa.select(_c.project, _c.kind, sa.func.count(), sa.func.sum(_c.kept)).group_by(
            _c.project, _c.kind
        )

    def add(self, conn: sa.Connection, rows: Sequence[DeadLetter]) -> None:
        """Enter these; their ``seq`` is given by the database."""
        self._database.write_many(conn, self._add, [_columns(row) for row in rows], "dead letters")

    def page(
        self,
        conn: sa.Connection,
        limit: int,
        *,
        before: int | None = None,
        kind: str | None = None,
        project: str | None = None,
        seq: int | None = None,
        with_payload: bool = True,
    ) -> list[DeadLetter]:
        """The newest that fit what is given."""
        fields = _FIELDS if with_payload else [name for name in _FIELDS if name != "payload"]
        query = sa.select(*(_c[name] for name in fields)).order_by(_c.seq.desc()).limit(limit)
        for column, value in ((_c.kind, kind), (_c.project, project), (_c.seq, seq)):
            if value is not None:
                query = query.where(column == value)
        if before is not None:
            query = query.where(_c.seq < before)
        rows = self._database.fetch(conn, query)
        return [DeadLetter(**{"payload": b"", **dict(zip(fields, row, strict=True))}) for row in rows]

    def drop(self, conn: sa.Connection, seqs: Sequence[int]) -> int:
        """At most PAGE of them; how many there were."""
        return self._database.execute(conn, self._drop, {"keys": list(seqs)}) if seqs else 0

    def surplus(self, conn: sa.Connection, rows: int, size: int, before: float) -> list[int]:
        """The ids of the oldest, at most PAGE, that must go so that limits are kept."""
        count, stored = self._database.fetch(conn, self._total)[0]
        surplus = []
        for seq, time, length in self._database.fetch(conn, self._oldest):
            if count <= rows and stored <= size and time >= before:
                break
            surplus.append(seq)
            count, stored = count - 1, stored - length
        return surplus

    def counts(self, conn: sa.Connection) -> list[LetterCount]:
        """By project and kind."""
        rows = self._database.fetch(conn, self._count)
        return [
            LetterCount(project=project, kind=kind, count=count, bytes=int(size)) for project, kind, count, size in rows
        ]


def _columns(row: DeadLetter) -> dict[str, Any]:
    """It must fit whatever it holds: it tells of what did not fit."""
    columns: dict[str, Any] = {name: getattr(row, name) for name in _WRITTEN} | {"kept": len(row.payload)}
    for name, value in columns.items():
        if isinstance(value, str):
            # PostgreSQL has no NUL, nobody has half of a surrogate pair
            text = value.encode("utf-8", "replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")
            columns[name] = text[:64] if name in ("kind", "queue", "project") else text
    return columns
