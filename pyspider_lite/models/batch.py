"""The messages: one type for each queue."""

from msgspec import Raw, Struct

from pyspider_lite.models.letter import Broken
from pyspider_lite.models.page import Dispatch, Page
from pyspider_lite.models.report import Report
from pyspider_lite.models.worker import Beat, Claim, Handover, Release


class TaskBatch(Struct, frozen=True, kw_only=True, tag="tasks"):
    """scheduler2fetcher."""

    batch: str
    epoch: int
    tasks: list[Dispatch]
    #: how many processors live: fetchers hold back while more than a few batches a processor wait
    processors: int = 1


class PageBatch(Struct, frozen=True, kw_only=True, tag="pages"):
    """fetcher2processor and scheduler2processor (there the scheduler made the responses)."""

    batch: str
    pages: list[Page]


class ResultBatch(Struct, frozen=True, kw_only=True, tag="results"):
    """processor2result: reports that carry items."""

    batch: str
    reports: list[Report]


StatusItem = Beat | Claim | Handover | Release | Report | Broken


class StatusBatch(Struct, frozen=True, kw_only=True, tag="status"):
    """status_queue: whatever one worker had to say, in its order."""

    items: list[StatusItem]


class NewTaskBatch(Struct, frozen=True, kw_only=True, tag="new"):
    """newtask_queue. Tasks stay encoded, so that one bad task does not take the others with it."""

    tasks: list[Raw]
