"""A statement for many rows, compiled once: SQLAlchemy's own executemany takes the statement's parameters together anew for each row, which
costs more than the row does in SQLite. Used by `engine` only."""

from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any

import sqlalchemy as sa


class Many:
    """``text`` is what the driver gets; ``columns`` are the keys of the rows, each of which is a parameter of the statement."""

    def __init__(self, statement: sa.UpdateBase, dialect: sa.Dialect, columns: Sequence[str]) -> None:
        compiled: Any = statement.compile(dialect=dialect, column_keys=columns, for_executemany=True)
        self.text = str(compiled)
        #: a driver's parameters are told by their names, or by their places
        self._named = not compiled.positional
        self._names: list[str] = list(compiled.params) if self._named else compiled.positiontup
        types = {name: compiled.binds[name].type.dialect_impl(dialect) for name in self._names}
        converts = ((place, types[name].bind_processor(dialect)) for place, name in enumerate(self._names))
        self._converts: list[tuple[int, Callable[[Any], Any]]] = [(place, how) for place, how in converts if how]
        self._take: Callable[[dict[str, Any]], tuple[Any, ...]] = itemgetter(*self._names)

    def parameters(self, rows: Sequence[dict[str, Any]]) -> Any:
        """The rows as the driver takes them."""
        taken = [self._converted(self._take(row)) for row in rows] if self._converts else list(map(self._take, rows))
        return [dict(zip(self._names, values, strict=True)) for values in taken] if self._named else taken

    def _converted(self, row: tuple[Any, ...]) -> tuple[Any, ...]:
        values = list(row)
        for place, how in self._converts:
            values[place] = how(values[place])
        return tuple(values)
