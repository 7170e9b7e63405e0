"""What waits for a commit, and how it is committed: in order, in transactions of bounded size, and nothing that cannot be stored holds up
what can. Used by `scheduler`."""

import logging
from collections import deque
from collections.abc import Callable

from pyspider_lite.errors import DatabaseError, DataError
from pyspider_lite.scheduler.batch import Batch
from pyspider_lite.scheduler.plan import Plan

logger = logging.getLogger("scheduler")

#: one transaction takes at most this many reports, or about this many rows
MAX_REPORTS, MAX_ROWS = 500, 5_000


class Backlog:
    """``commit(batch, now)`` writes a batch in one transaction; ``committed`` is told of each one, ``unstorable`` of the one thing that
    cannot be written."""

    def __init__(
        self,
        commit: Callable[[Batch, float], Plan],
        committed: Callable[[Batch, Plan, float], None],
        unstorable: Callable[[Batch, Exception, float], None],
    ) -> None:
        self._commit = commit
        self._committed = committed
        self._unstorable = unstorable
        #: what comes in goes here
        self.batch = Batch()
        self._waiting: deque[Batch] = deque()

    def __bool__(self) -> bool:
        return bool(self.batch or self._waiting)

    @property
    def size(self) -> int:
        """Reports and submissions that wait. From any thread."""
        return (
            len(self.batch.reports)
            + len(self.batch.submissions)
            + sum(len(order.tasks) for order in self.batch.orders)
            + sum(batch.rows() for batch in tuple(self._waiting))
        )

    def commit_all(self, now: float) -> None:
        """Commit what waits, cut into transactions of bounded size. A batch stays at the head until it is committed. Raises DatabaseError
        while the database is away."""
        if self.batch:
            self._waiting.extend(self.batch.cut(MAX_REPORTS, MAX_ROWS))
            self.batch = Batch()
        while self._waiting:
            batch = self._waiting[0]
            try:
                plan = self._commit(batch, now)
            except Exception as error:
                if isinstance(error, DatabaseError) and not isinstance(error, DataError):
                    raise
                # also for what nobody thought of: one row must not hold up all others for ever
                logger.debug("a batch could not be committed", exc_info=True)
                self._waiting.popleft()
                self._bisect(batch, error, now)
                continue
            self._waiting.popleft()
            self._committed(batch, plan, now)

    def _bisect(self, batch: Batch, error: Exception, now: float) -> None:
        """Something in the batch cannot be stored: halve it until the bad one stands alone, then fail only that one."""
        halves = batch.halves()
        if halves:
            self._waiting.extendleft(reversed(halves))
        elif batch.reports and not batch.last_resort:
            self._waiting.appendleft(batch.failed(f"could not be stored: {error}"))
        else:
            self._unstorable(batch, error, now)
