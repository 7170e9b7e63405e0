"""Where dead letters go when they are tried again."""

from typing import Any

import pytest
from msgspec import Raw

from pyspider_lite import codec
from pyspider_lite.cli import letter_ways
from pyspider_lite.errors import BrokenMessage
from pyspider_lite.models.batch import NewTaskBatch, ResultBatch, StatusBatch, TaskBatch
from pyspider_lite.models.letter import DeadLetter
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.report import RETRIED, Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.models.worker import Beat, Claim

TASK = NewTask("t", "p", "http://a/")
REPORT = Report(project="p", taskid="t", url="http://a/", run=3, items=[Item("", "1")])


def letter(kind: str, payload: bytes, queue: str = "", **fields: Any) -> DeadLetter:
    return DeadLetter(
        **{"kind": kind, "queue": queue, "reason": "r", "payload": payload, "size": len(payload), "time": 0.0, "seq": 7}
        | fields
    )


@pytest.mark.parametrize(
    "found",
    [
        letter("submission", codec.pack(TASK), QueueName.NEW_TASKS),
        letter("message", codec.pack(TASK), QueueName.NEW_TASKS),
        letter("message", codec.encode(NewTaskBatch(tasks=[Raw(codec.pack(TASK))])), QueueName.NEW_TASKS),
    ],
    ids=["submission", "one task", "batch"],
)
def test_a_submission_goes_to_the_scheduler(found: DeadLetter) -> None:
    way = letter_ways.way_of(found)
    assert way.queue == QueueName.NEW_TASKS
    (raw,) = codec.decode(way.body, NewTaskBatch).tasks
    assert codec.unpack(bytes(raw), NewTask) == TASK
    assert "http://a/" in str(letter_ways.shown(found))


def test_results_go_to_the_result_workers_as_those_of_no_run() -> None:
    way = letter_ways.way_of(letter("result", codec.pack(REPORT), QueueName.RESULTS))
    assert way.queue == QueueName.RESULTS
    (report,) = codec.decode(way.body, ResultBatch).reports
    assert (report.items, report.run, report.part, report.parts) == (REPORT.items, 3, RETRIED, 0)


def test_a_report_goes_to_the_scheduler_without_what_workers_did_then() -> None:
    said = StatusBatch(
        items=[
            Beat(worker="w", role="fetcher", host="h", pid=1),
            REPORT,
            Claim(worker="w", queue=QueueName.TO_FETCHER, batch="b"),
        ]
    )
    for found in (
        letter("report", codec.pack(REPORT), QueueName.STATUS),
        letter("message", codec.encode(said), QueueName.STATUS),
    ):
        way = letter_ways.way_of(found)
        assert (way.queue, codec.decode(way.body, StatusBatch).items) == (QueueName.STATUS, [REPORT])


def test_a_message_that_can_be_read_goes_as_it_was() -> None:
    body = codec.encode(TaskBatch(batch="b", epoch=1, tasks=[Dispatch(taskid="t", project="p", url="u")]))
    way = letter_ways.way_of(letter("message", body, QueueName.TO_FETCHER))
    assert (way.queue, way.body) == (QueueName.TO_FETCHER, body)


@pytest.mark.parametrize(
    ("found", "reason"),
    [
        (letter("message", b"pickle?", QueueName.TO_FETCHER), "not a message of pyspider_lite"),
        (letter("message", b"PSL\x09\x00", QueueName.STATUS), "run one version everywhere"),
        (letter("message", codec.pack(TASK), QueueName.NEW_TASKS, size=10**6), "only the first"),
        (letter("message", codec.pack(NewTask("t", "p", "")), QueueName.NEW_TASKS), "url is missing"),
        (letter("message", b"x", "orders.worker"), "it came from orders.worker"),
        (letter("result", b"x", QueueName.RESULTS), "not a Report"),
        (
            letter("message", codec.encode(StatusBatch(items=[Claim(worker="w", queue="q", batch="b")])), QueueName.STATUS),
            "only told what workers did",
        ),
    ],
)  # fmt: skip
def test_what_is_of_no_use_stays(found: DeadLetter, reason: str) -> None:
    with pytest.raises(BrokenMessage, match=reason):
        letter_ways.way_of(found)
