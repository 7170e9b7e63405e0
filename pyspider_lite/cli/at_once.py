"""Questions to several servers at the same time, with one deadline: a host that drops packets must not keep the others' answers
from being shown. Used by `cluster list` and `check-config`."""

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from pyspider_lite.errors import RefusedToStart


def at_once(questions: Sequence[Callable[[], Any]], seconds: float) -> list[Any]:
    """The answer to each question, or the exception that it raised; RefusedToStart for what did not come within ``seconds``.
    Threads that still wait then are left alone: they end with the process."""
    answers: dict[int, Any] = {}

    def ask(index: int) -> None:
        try:
            answers[index] = questions[index]()
        except Exception as error:
            answers[index] = error

    threads = [threading.Thread(target=ask, args=(index,), daemon=True) for index in range(len(questions))]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    for thread in threads:
        thread.join(max(0.0, deadline - time.monotonic()))
    late = RefusedToStart(f"no answer within {seconds:g} s")
    return [answers.get(index, late) for index in range(len(questions))]
