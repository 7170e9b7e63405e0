"""A server that neither answers nor refuses is waited for like one that is away."""

import time

import pytest

from pyspider_lite import answers, outages
from pyspider_lite.answers import LATE

DB = "mysql+resultdb://u:***@h/r"


def test_what_has_been_asked_for_long_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.time()
    with answers.asking(DB), answers.asking("other"):
        assert not outages.waiting()
        monkeypatch.setattr(time, "time", lambda: began + LATE + 2)
        waiting = outages.waiting()
        assert waiting.keys() == {DB, "other"} and waiting[DB] == pytest.approx(began, abs=1)
        assert outages.reasons()[DB] == "it was asked and does not answer"
    assert not outages.waiting()


def test_the_log_says_it_once_and_when_it_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    said: dict[str, float] = {}
    with caplog.at_level("INFO"), answers.asking(DB):
        now = time.time()
        for seconds in (1.0, LATE + 1, LATE + 3):
            said = answers._say(said, now + seconds)
        with answers.asking(DB):
            said = answers._say(said, now + LATE + 5)
    with caplog.at_level("INFO"):
        for seconds in (30.0, 32.0):
            said = answers._say(said, now + seconds)
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith(f"waiting for {DB} since ") and first.endswith(": it was asked and does not answer")
    assert second == f"{DB} answers again after 30.0 s"
