"""What is imported from ``pyspider.result``: the result workers that users subclass (behaviour P41, P42)."""

from importlib import import_module
from typing import Any

from pyspider_lite.compat.database import ResultDB

# of a floor above this one: by name only
_ours: Any = import_module("pyspider_lite.result_worker")
OneResultWorker: Any = _ours.OneResultWorker


class ResultWorker(_ours.ResultWorker):  # type: ignore[misc]
    """Ours, with a ``self.resultdb`` that has pyspider's methods as well: overrides of on_result call ``self.resultdb.save``."""

    def __init__(self, resultdb: Any, inqueue: Any = None) -> None:
        super().__init__(ResultDB(resultdb) if resultdb is not None else None, inqueue)
