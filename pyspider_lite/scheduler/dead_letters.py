"""The scheduler's part in dead letters: how many are kept, how many there are, what waits to be entered. Used by `scheduler`.

The newest are kept: within `MAX_ROWS`, `MAX_BYTES` and `MAX_AGE`. What is dropped to keep these bounds is logged and counted.
"""

import logging
from collections import Counter

from pyspider_lite import codec
from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.control import Control
from pyspider_lite.models.letter import Broken, DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName, RunKey

logger = logging.getLogger("scheduler")

#: dead letters in the taskdb at most, bytes of their payloads, and seconds for which one is kept
MAX_ROWS, MAX_BYTES, MAX_AGE = 10_000, 64 * 1024 * 1024, 30 * 86_400.0
#: bytes of payload that may wait for their commit, while a database is away
MAX_WAITING = 16 * 1024 * 1024
#: seconds between two looks at the table, and after new letters
LOOK_EVERY, LOOK_SOON = 60.0, 5.0
#: bytes that one of them takes beside its payload, about
_ROW = 500
#: as much is kept of a message
PAYLOAD = 64 * 1024


def letter_of(broken: Broken, now: float) -> DeadLetter:
    """What somebody could not read or store."""
    return DeadLetter(
        kind=broken.kind,
        queue=broken.queue,
        project=broken.project,
        taskid=broken.taskid,
        reason=broken.reason,
        payload=broken.body if broken.kind == LetterKind.RESULT else broken.body[:PAYLOAD],
        size=max(broken.size, len(broken.body)),
        time=now,
    )


def letter_of_task(run: RunKey, reason: str, now: float, row: Control | None = None) -> DeadLetter:
    """A task that is given up, or control work: then with ``row``, of which the payload is the beginning, for it is in no table any
    more."""
    payload = codec.keepsake(row.task) if row else b""
    return DeadLetter(
        kind=LetterKind.TASK,
        queue=QueueName.CONTROL if row else QueueName.TO_FETCHER,
        project=run[0],
        taskid=row.task.taskid if row else run[1],
        reason=reason,
        payload=payload[:PAYLOAD],
        size=len(payload),
        time=now,
    )


class DeadLetters:
    """Keeps the table within its bounds."""

    def __init__(self, taskdb: TaskDB) -> None:
        self._taskdb = taskdb
        self._look_at = float("-inf")
        self._waiting = 0
        #: in the taskdb as seen last, by kind
        self.counts: Counter[str] = Counter()
        #: dropped in this term, because there were too many
        self.dropped = 0

    def keep(self, letter: DeadLetter, waiting: list[DeadLetter]) -> None:
        """Append it to what ``waiting`` for the next commit, if there is room; else it is lost, and said to be."""
        size = _size(letter)
        if self._waiting + size > MAX_WAITING:
            self.dropped += 1
            logger.error("a dead letter is dropped, because too many wait for the taskdb: %s", letter.reason)
            return
        self._waiting += size
        waiting.append(letter)

    def committed(self, letters: list[DeadLetter], now: float) -> None:
        """These were entered."""
        if letters:
            self._waiting = max(0, self._waiting - sum(map(_size, letters)))
            self._look_at = min(self._look_at, now + LOOK_SOON)

    def look(self, now: float) -> None:
        """Count them, and drop the oldest above the bounds, if it is time for it."""
        if now < self._look_at:
            return
        self._look_at = now + LOOK_EVERY
        dropped = self._taskdb.trim_dead_letters(MAX_ROWS, MAX_BYTES, now - MAX_AGE)
        if dropped:
            self.dropped += dropped
            logger.warning(
                "the oldest %d dead letters are dropped: at most %d, %d MiB and %d days are kept",
                dropped,
                MAX_ROWS,
                MAX_BYTES >> 20,
                MAX_AGE // 86_400,
            )
        self.counts = Counter()
        for found in self._taskdb.count_dead_letters():
            self.counts[found.kind] += found.count


def _size(letter: DeadLetter) -> int:
    return _ROW + len(letter.payload)
