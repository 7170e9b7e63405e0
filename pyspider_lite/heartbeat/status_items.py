"""How status items are encoded, and what is sent in place of one that cannot be sent: a run must end whatever its report looks like."""

import logging

from msgspec import Raw, Struct

from pyspider_lite import codec
from pyspider_lite.errors import MessageTooLarge
from pyspider_lite.models.batch import StatusBatch, StatusItem
from pyspider_lite.models.report import Report

logger = logging.getLogger(__name__)


class _PackedBatch(Struct, frozen=True, tag="status"):
    """A StatusBatch of items that are encoded already: each item is encoded once, when it is said, so its size is known."""

    items: list[Raw]


def pack(item: StatusItem) -> bytes:
    """The item as msgpack. A report that has no encoding becomes a failed one that says why."""
    try:
        return codec.pack(item)
    except Exception as error:
        if not isinstance(item, Report):
            raise
        logger.error("%s:%s: its report has no encoding: %s", item.project, item.taskid, error)
        return codec.pack(_failed(item, f"the report cannot be encoded: {error}"))


def message(batch: list[bytes]) -> bytes:
    """The body of a StatusBatch of these. Raises MessageTooLarge."""
    return codec.encode(_PackedBatch(items=[Raw(packed) for packed in batch]))


def unpack(batch: list[bytes]) -> list[StatusItem]:
    """The items again."""
    return codec.unpack(codec.pack(_PackedBatch(items=[Raw(packed) for packed in batch])), StatusBatch).items


def too_large(packed: bytes, error: MessageTooLarge) -> bytes | None:
    """What is sent in place of an item that is too large; None drops it."""
    item = unpack([packed])[0]
    if not isinstance(item, Report):
        logger.error("a %s was dropped: %s", type(item).__name__, error)
        return None
    logger.error("%s:%s: its report is too large: %s", item.project, item.taskid, error)
    return codec.pack(_failed(item, f"the report is too large: {error}"))


def _failed(report: Report, reason: str) -> Report:
    """A report that ends the same run as failed (behaviour P22), without anything that the run produced."""
    process = {"ok": False, "time": 0.0, "follows": 0, "result": None, "logs": reason, "exception": reason}
    return Report.of(
        report,
        ok=False,
        track={"process": process},
    )
