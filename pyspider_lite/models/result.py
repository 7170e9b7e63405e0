"""Results as the resultdb takes and gives them."""

from msgspec import Struct, field

from pyspider_lite.models.report import Item


class TaskResult(Struct, frozen=True, kw_only=True):
    """The items of one run (or one part of it) for the resultdb."""

    project: str
    taskid: str
    url: str
    run: int
    #: of the scheduler that gave the run out: it tells runs apart that a taskdb counts again which was put back from a copy
    epoch: int = 0
    generation: str = ""
    items: list[Item] = field(default_factory=list)
    #: the last part of a successful run: items of earlier runs are dropped
    replace: bool = False
    #: with ``replace``: these are all items of the run, so what an earlier try of the same run stored besides is dropped too
    complete: bool = False


class ResultRow(Struct, frozen=True, kw_only=True):
    """One stored item."""

    taskid: str
    url: str
    #: JSON text
    result: str
    updatetime: float
    item: str = ""
    run: int = 0
    seq: int = 0
