"""`explain` with a scheduler that can be asked. (What that knows: scheduler/test_remote.)"""

import re
import time
from collections.abc import Callable
from typing import Any

import pytest
from explained_shop import ID, URL, Shop
from msgspec.structs import replace

from pyspider_lite.models.project import ProjectState


def test_a_pause_its_reason_and_what_lifts_it(shop: Shop, said: Callable[..., str], live: dict[str, Any]) -> None:
    shop.submitted()
    new = f"{URL} was submitted and not crawled yet; its next run is due since T, but the project "
    state = ProjectState(project="shop", paused_until=shop.now + 300, pause_reason="the last 10 tasks all failed")
    with shop.taskdb.begin(None) as tx:
        tx.put_project_states([state])
    assert said() == (
        f"{new}pauses until T, because the last 10 tasks all failed; then a few tasks are tried, and "
        "`pyspider_lite project resume shop` does so at once.\n"
    )
    with shop.taskdb.begin(None) as tx:
        tx.put_project_states([replace(state, paused_until=shop.now - 1)])
    assert said() == (
        f"{new}was paused, because the last 10 tasks all failed; it goes on as soon as one of the few tasks that are tried now "
        "goes well.\n"
    )


def test_what_only_the_scheduler_knows(shop: Shop, said: Callable[..., str], live: dict[str, Any]) -> None:
    shop.submitted()
    new = f"{URL} was submitted and not crawled yet; its next run "
    assert (
        said()
        == f"{new}comes as soon as the project's rate of 2 a second, better tasks and the runs in flight leave room.\n"
    )
    live["held_until"] = time.time() + 9.6
    assert "what ran when all was killed waits so long after each start" in said()
    live.update(in_flight=True, held_until=None)
    assert said() == f"{new}is under way now.\n"
    live.update(in_flight=False, asked=False)
    assert said() == f"{new}is due since T, but its script was not loaded yet (processors do that).\n"
    live.update(asked=True, alone={"project": "x", "taskid": "y", "since": time.time() - 5})
    assert re.search(r" all waits for x:y, which goes alone, since \ds: it ran whenever everything", said())


@pytest.mark.parametrize(
    ("reason", "until", "times", "sentence"),
    [
        ("seen", None, 7, "A submission of it (the last of 7) was dropped at T: seen (it is stored, and neither age,"),
        ("fresh", 3 * 86400.0, 1, "A submission of it was dropped at T: fresh for 3d, until T.\n"),
        ("same-itag", None, 1, "A submission of it was dropped at T: same itag.\n"),
        ("active", None, 1, "dropped at T: active (it waited for its turn or ran already).\n"),
        ("invalid: schedule.age is 'x', not a number", None, 1, "dropped at T: invalid: schedule.age is 'x', not a number.\n"),
    ],
    ids=["seen", "fresh", "same-itag", "active", "invalid"],
)  # fmt: skip
def test_why_a_submission_was_dropped(
    shop: Shop, said: Callable[..., str], live: dict[str, Any], reason: str, until: Any, times: int, sentence: str
) -> None:
    shop.submitted()
    live["drop"] = {
        "time": shop.now, "taskid": ID, "url": URL, "reason": reason,
        "until": until and shop.now + until, "times": times,
    }  # fmt: skip
    assert sentence in said()


def test_a_stranger_and_the_drops_of_its_project(said: Callable[..., str], live: dict[str, Any]) -> None:
    live["dropped"] = {"seen": 12.0, "bad-url": 1.0}
    assert said("http://shop.test/b").endswith(
        "\nNone of the last drops of the project is of it; in all it had: bad-url 1, seen 12.\n"
    )
