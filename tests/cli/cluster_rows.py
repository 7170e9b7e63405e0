"""Workers and leaders as the taskdb has them."""

from typing import Any

from pyspider_lite.cli.cluster_view import View
from pyspider_lite.database.base import Leader
from pyspider_lite.models.worker import Beat, WorkerRow

NOW = 1_000_000.0


def row(role: str, worker: str = "", age: float = 1.0, **said: Any) -> WorkerRow:
    worker = worker or f"web:{role}:ab"
    said = {"version": "1.0", "config_hash": "cafe", "pool_size": 100, **said}
    return WorkerRow(beat=Beat(worker=worker, role=role, host=worker.partition(":")[0], pid=1, **said), seen=NOW - age)


def view(*rows: WorkerRow, leads: bool = True, **fields: Any) -> View:
    leader = Leader(epoch=3, holder="web:scheduler:ab:ff", until=NOW + (5 if leads else -5), rpc="http://web:23333/")
    return View(now=NOW, leader=leader, workers=list(rows), depths={"status_queue": 2}, config_hash="cafe", **fields)


ALL = tuple(row(role) for role in ("scheduler", "fetcher", "processor", "result_worker"))
