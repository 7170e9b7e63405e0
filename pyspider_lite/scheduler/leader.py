"""Who leads: a thread of its own renews the leader row, so that a long transaction of the loop costs no leadership. The epoch that
every transaction checks is what makes it safe; this thread only makes it prompt (design, section 5)."""

import logging
import threading
import time
from collections.abc import Callable

from pyspider_lite.consumer import Backoff
from pyspider_lite.database.base import Leader, TaskDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.outages import Waiter
from pyspider_lite.scheduler.election import Address, Election

logger = logging.getLogger("scheduler")

#: seconds: how long a leader leads without renewing, and how often it renews; with `daemon.ADOPT_FOR` less than the 8 s in which work
#: goes on after a kill
TERM, RENEW = 5.0, 1.5
#: seconds between two tries of a stand-by
_TRY = 0.5


class Standstill:
    """Whether a leader row is left: its term ends later than any term can, because the database's clock was set back, and nobody renews it.
    Pure: a stand-by tells it what it sees."""

    def __init__(self) -> None:
        self._seen: tuple[int, float] | None = None
        self._since = 0.0

    def longer_than_a_term(self, row: Leader, now: float) -> bool:
        """The row is the same for longer than a term; ``now`` is the stand-by's own monotonic clock, seconds. A leader that lives renews
        it three times in that time."""
        if self._seen != (row.epoch, row.until):
            self._seen, self._since = (row.epoch, row.until), now
        return now - self._since > TERM


class Leadership(threading.Thread):
    """Tries to lead, and keeps the lead; ``lost`` is called once when it is gone.

    A database that is away takes no lead from anybody: whoever led goes on when it is back, unless another was faster. With an
    ``address`` of ZooKeeper an election decides who may try, and not whether the term of another is over.
    """

    def __init__(
        self,
        taskdb: TaskDB,
        holder: str,
        rpc: Callable[[], str],
        lost: Callable[[], None],
        address: Address | None = None,
    ) -> None:
        super().__init__(name="leadership", daemon=True)
        self._taskdb = taskdb
        self._holder = holder
        self._rpc = rpc
        self._lost = lost
        self._leads = threading.Event()
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._election = Election(address, holder, self._wake.set) if address is not None else None
        #: on the monotonic clock, which stands still while a machine is suspended, and on the one that does not
        self._until = self._until_wall = 0.0
        self._waiter = Waiter()
        self._standstill = Standstill()
        self.epoch: int | None = None
        #: nobody led before us, as far as the leader row knows
        self.first = False
        #: who leads in our place, as the database said last
        self.leader: Leader | None = None

    def wait(self, timeout: float) -> int | None:
        """The epoch once we lead; None if that does not happen within ``timeout`` seconds."""
        return self.epoch if self._leads.wait(timeout) else None

    @property
    def overdue(self) -> bool:
        """It leads, but could not renew in time: another may lead, or will."""
        return self.epoch is not None and (time.monotonic() >= self._until or time.time() >= self._until_wall)

    def stop(self) -> None:
        """Give the lead back, so that a stand-by takes over at once."""
        self._stopping.set()
        self._wake.set()
        if self.is_alive():
            self.join(5.0 if self._waiter.since is None else 0.5)

    def run(self) -> None:
        backoff = Backoff(0.2)
        while not self._stopping.is_set():
            try:
                ours = self._round(time.monotonic())
            except Exception as error:  # of a driver, too: this thread has to live
                self._waiter.away(error)
                self._stopping.wait(backoff.next())
                continue
            self._waiter.back()
            backoff.reset()
            if not ours:
                if self.epoch is not None:
                    logger.warning(
                        "epoch %d: another scheduler leads now, or may, or the taskdb was put back from a copy",
                        self.epoch,
                    )
                self._lost()
                break
            self._wake.wait(_TRY if self.epoch is None else RENEW)
            self._wake.clear()
        self._resign()

    def _round(self, began: float) -> bool:
        """One try to lead, or to renew; False if the lead is another's."""
        if self._election is not None and self._election.lost:
            return False
        wall = time.time()
        if self.epoch is None:
            self._until, self._until_wall = began + TERM, wall + TERM
            self.first = self._taskdb.leader() is None
            if self._election is None:
                self.epoch = self._taskdb.lead(self._holder, TERM, self._rpc())
            elif self._election.won():
                self.epoch = self._taskdb.lead(self._holder, TERM, self._rpc(), elected=True)
            self.leader = self._taskdb.leader() if self.epoch is None else None
            if self.leader is not None and self._election is None:
                self._replace(self.leader, began)
            if self.epoch is not None:
                self._leads.set()
            return True
        if not self._taskdb.renew(self.epoch, TERM):
            return False
        self._until, self._until_wall = began + TERM, wall + TERM
        return True

    def _replace(self, row: Leader, now: float) -> None:
        """Lead in the place of a leader that is gone and left a term without a foreseeable end. That it may live after all does no harm:
        with the epoch it can write nothing more."""
        if not self._standstill.longer_than_a_term(row, now):
            return
        ahead = row.until - self._taskdb.time()
        if ahead <= TERM:
            return
        self.epoch = self._taskdb.lead(self._holder, TERM, self._rpc(), instead_of=row)
        if self.epoch is not None:
            self.leader = None
            logger.warning(
                "the lead of %s was to end only in %.0f s and was not renewed: the database's clock was set back; we lead now",
                *(row.holder, ahead),
            )

    def _resign(self) -> None:
        try:
            if self.epoch is not None and self._waiter.since is None:
                self._taskdb.resign(self.epoch)
        except DatabaseError as error:
            logger.debug("could not resign: %s", error)
        self._waiter.stop()
        self._taskdb.close()
        if self._election is not None:
            # after the row: who is elected now finds it free
            self._election.close()
