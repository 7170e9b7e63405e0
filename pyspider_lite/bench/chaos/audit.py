"""Counts how often each result is written, by triggers on the table of results: in the transaction that writes it, whoever that is.

Results are upserted, so a table of results cannot tell by itself that one was written twice.
"""

import sqlalchemy as sa

from pyspider_lite.database.url import parse

_NOTE = "insert into chaos_writes (taskid, item, updatetime) values (new.taskid, new.item, new.updatetime)"
#: by dialect; {table} is the quoted name of the table of results, {event} insert or update
_TRIGGERS = {
    "sqlite": [f"create trigger chaos_{{event}} after {{event}} on {{table}} begin {_NOTE}; end"],
    "mysql": [f"create trigger chaos_{{event}} after {{event}} on {{table}} for each row {_NOTE}"],
    "postgresql": [
        "create or replace function chaos_note() returns trigger language plpgsql as "
        f"'begin {_NOTE}; return null; end'",
        "create trigger chaos_{event} after {event} on {table} for each row execute function chaos_note()",
    ],
}
_WRITES = sa.Table(
    "chaos_writes",
    sa.MetaData(),
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("taskid", sa.String(64)),
    sa.Column("item", sa.String(64)),
    sa.Column("updatetime", sa.Double),
)


class Audit:
    """Of the results of ``project`` in the resultdb at ``url``."""

    def __init__(self, url: str, project: str) -> None:
        self._engine = sa.create_engine(parse(url, "resultdb").url, poolclass=sa.NullPool)
        self._project = project

    def install(self) -> None:
        """From now on writes are counted; the table of results has to be there."""
        quote = self._engine.dialect.identifier_preparer.quote
        with self._engine.begin() as conn:
            _WRITES.create(conn)
            names = sa.inspect(conn).get_table_names()
            (table,) = [name for name in names if name in (self._project, f"resultdb_{self._project}")]
            for event in ("insert", "update"):
                for statement in _TRIGGERS[self._engine.dialect.name]:
                    conn.execute(sa.text(statement.format(table=quote(table), event=event)))

    def writes(self) -> dict[tuple[str, str], list[float]]:
        """When each item of each task was written, by key column."""
        found: dict[tuple[str, str], list[float]] = {}
        with self._engine.connect() as conn:
            rows = conn.execute(sa.select(_WRITES.c.taskid, _WRITES.c.item, _WRITES.c.updatetime).order_by("id"))
            for taskid, item, updatetime in rows:
                found.setdefault((taskid, item), []).append(updatetime)
        return found
