"""Tracks and parts of reports, what is kept of a log, how batches are cut."""

import itertools

import pytest

from pyspider_lite import codec
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.report import Item, Message, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.processor import report, returns
from pyspider_lite.processor.captured import CapturedLog
from pyspider_lite.processor.lane import time_limit


def whole(**fields):
    return Report(
        **{"project": "p", "taskid": "t", "url": "u", "run": 2, "generation": "g", "control": "c"},
        **{
            "track": {"process": {"ok": True}},
            "messages": [Message("q", 1, "m")],
            "retry_after": 3.0,
            "info": {"a": 1},
        },
        **fields,
    )


def follow(number, size=0):
    return NewTask(f"f{number}", "p", "http://a/" + "x" * size)


def test_a_small_report_stays_whole():
    one = whole(follows=[follow(n) for n in range(1000)])
    assert report.parts(one) == [one]


@pytest.mark.parametrize(("count", "size"), [(2500, 0), (30, 100_000), (1001, 0)])
def test_parts_carry_everything_once_and_the_last_states_their_number(count, size):
    items = [Item(str(n), "1" * size) for n in range(20)]
    one = whole(follows=[follow(n, size) for n in range(count)], items=items, task=follow(0))
    parts = report.parts(one)
    *first, last = parts
    assert [part.part for part in parts] == list(range(len(parts))) and last.parts == len(parts) > 1
    assert all(part.parts == 0 and not part.track and not part.messages and part.info is None for part in first)
    assert (last.track, last.messages, last.info, last.retry_after) == (one.track, one.messages, one.info, 3.0)
    assert {part.key for part in parts} == {one.key} and all(part.task == one.task for part in parts)
    assert list(itertools.chain.from_iterable(part.follows for part in parts)) == one.follows
    assert list(itertools.chain.from_iterable(part.items for part in parts)) == items
    assert all(len(part.follows) <= 1000 and len(codec.pack(part)) < 1_100_000 for part in parts)


def test_parts_that_go_before_the_report_is_complete():
    sent = report.first_parts(whole(follows=[follow(n) for n in range(1500)]), 0)
    assert [(part.part, part.parts, len(part.follows)) for part in sent] == [(0, 0, 1000), (1, 0, 500)]
    assert [(part.part, part.parts) for part in report.first_parts(whole(follows=[follow(1)]), 2)] == [(2, 0)]
    (last,) = report.parts(whole(follows=[follow(2)]), 3)
    assert (last.part, last.parts, last.track) == (3, 4, whole().track)


def test_a_piece_that_no_message_can_carry_is_named():
    with pytest.raises(ValueError, match=r"the result 'k' takes 9000\d+ bytes"):
        report.parts(whole(items=[Item("k", "1" * 9_000_000)]))
    with pytest.raises(ValueError, match=r"the follow-up http://a/x+ takes"):
        report.parts(whole(follows=[follow(1, 9_000_000)]))


@pytest.mark.parametrize(
    ("status", "error", "ok"),
    [(200, None, True), (304, "HTTP 304", True), (404, "HTTP 404", False), (599, "late", False)],
)
def test_a_failure_outside_the_callback(status, error, ok):
    response = FetchResponse(
        status_code=status,
        error=error,
        url="http://b/",
        orig_url="http://a/",
        content=b"\xff" + b"y" * 900,
        retry_after=9.0,
    )
    task = Dispatch(taskid="t", project="p", url="http://a/", run=4, control="c", track={"save": {"n": 1}})
    made = report.failure(Page(task, response), "killed", "log" * 1000, 1.5)
    assert (made.ok, made.key, made.retry_after, made.track["save"]) == (False, task.key, 9.0, {"n": 1})
    fetch, process = made.track["fetch"], made.track["process"]
    assert (fetch["ok"], fetch["redirect_url"], fetch["error"]) == (ok, "http://b/", error)
    assert fetch["content"] == "\ufffd" + "y" * 499
    assert len(process["logs"]) == 1000 and process["exception"] == "killed" and process["time"] == 1.5


def test_the_log_keeps_beginning_and_end():
    log = CapturedLog(100)
    for number in range(10_000):
        log.write(f"line {number}\n")
    text = log.text()
    assert text.startswith("line 0\nline 1\n") and text.endswith("line 9998\nline 9999\n")
    assert "characters left out" in text and len(text) < 150
    total = sum(len(f"line {number}\n") for number in range(10_000))
    assert f"... {total - 100} characters" in text


@pytest.mark.parametrize("size", [1, 49, 50, 51, 99, 100, 101, 250, 10_000])
@pytest.mark.parametrize("step", [1, 7, 10_000])
def test_the_log_is_whole_below_its_limit_and_bounded_above(size, step):
    source = "".join(chr(97 + n % 26) for n in range(size))
    log = CapturedLog(100)
    for start in range(0, size, step):
        log.write(source[start : start + step])
    text = log.text()
    if size <= 100:
        assert text == source
    else:
        assert text == f"{source[:50]}\n... {size - 100} characters left out ...\n{source[-50:]}"
    assert log.text() == text


def test_the_log_is_a_text_stream():
    log = CapturedLog(100)
    print("a", 1, file=log, flush=True)
    log.writelines(["b", "c"])
    log.buffer.write(b"\xffd")
    assert log.text() == "a 1\nbc\\xffd" and not log.isatty() and log.encoding == "utf-8"
    with pytest.raises(TypeError):
        log.write(b"bytes")


def page(size=0, **process):
    return Page(Dispatch(taskid="t", project="p", url="u", process=process), FetchResponse(content=b"x" * size))


def test_pages_given_back_are_cut_into_batches():
    assert [len(group) for group in returns.cut([page() for _ in range(45)])] == [20, 20, 5]
    assert [len(group) for group in returns.cut([page(3_000_000), page(3_000_000), page(9), page(9_000_000)])] == [
        1,
        2,
        1,
    ]
    assert returns.cut([]) == []
    # what they save counts as much
    large = Page(Dispatch(taskid="t", project="p", url="u", fetch={"save": "x" * 3_000_000}), FetchResponse())
    assert [len(group) for group in returns.cut([large, large, page()])] == [1, 2]


@pytest.mark.parametrize(
    ("own", "limit"), [({}, 30), ({"process_time_limit": 5}, 5), ({"process_time_limit": "2.5"}, 2.5)]
    + [({"process_time_limit": odd}, 30) for odd in (None, True, "x", [])]
    + [({"process_time_limit": 0}, 0), ({"process_time_limit": -1}, 0)],
)  # fmt: skip
def test_the_time_limit_of_a_task(own, limit):
    assert time_limit(page(**own), 30) == limit
