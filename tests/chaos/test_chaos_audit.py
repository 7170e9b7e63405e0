"""Each write of a result is counted, also one that changes nothing."""

import contextlib
from pathlib import Path

from pyspider_lite import database
from pyspider_lite.bench.chaos.audit import Audit
from pyspider_lite.models.report import Item
from pyspider_lite.models.result import TaskResult


def test_writes_are_counted(tmp_path: Path) -> None:
    url = f"sqlite+resultdb:///{tmp_path}/result.db"
    result = TaskResult(project="chaos", taskid="a", url="http://a/", run=0, items=[Item("", "1")], replace=True)
    with contextlib.closing(database.connect_resultdb(url)) as resultdb:
        resultdb.store([TaskResult(project="chaos", taskid="none", url="", run=0)])
        audit = Audit(url, "chaos")
        audit.install()
        resultdb.store([result])
        resultdb.store([result, TaskResult(project="chaos", taskid="b", url="http://b/", run=0, items=[Item("", "2")])])
    assert {key: len(times) for key, times in audit.writes().items()} == {("a", ""): 2, ("b", ""): 1}
    assert audit.writes()[("a", "")] == sorted(audit.writes()[("a", "")])
