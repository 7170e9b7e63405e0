"""Pages that take long: their lanes are set aside, and go on beside the lane for all other pages. Here is decided which projects wait
meanwhile, and who comes next. Owned by the processor, which looks after the lanes."""

import time
from collections.abc import Callable, Collection

from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Page
from pyspider_lite.processor.inbox import Inbox
from pyspider_lite.processor.lane import Lane

#: seconds that a page may run while others wait behind it
SLOW = 1.0
#: lanes aside in which pages follow each other, and lanes aside at most: so many projects of which nobody knew that they are slow hold up
#: nobody, whose next pages take turns in the first ones
ASIDE, MOST_ASIDE = 2, 12
#: seconds for which it is known how long a project's pages take, and how much of that the last one tells
REMEMBERED, NEWEST = 60.0, 0.2
#: projects of which that is known at most, unless they are slow
MOST_PROJECTS = 10_000
#: seconds at most that pages wait for one of their project before they go back to the queue
GIVE_BACK = 10.0
#: the same when they take so much memory that nothing else is taken: sending it around takes time, too
CROWDED = 3.0
#: seconds that a page may run beside which suspects wait before they go back, too
SUSPECTS_WAIT = 30.0


class Turns:
    """Which projects wait, and for how long. Pure; ``now`` is the time in seconds of any clock."""

    def __init__(self) -> None:
        #: what the pages of a project take, seconds, the newer the more it counts, and when the last one was over
        self._takes: dict[str, tuple[float, float]] = {}
        self._gave_back = self._next_give_back = float("-inf")

    def took(self, project: str, seconds: float, now: float) -> bool:
        """A page is over; whether this changes which projects are slow."""
        usual = self._takes[project][0] if project in self._takes else None
        takes = seconds if usual is None else usual + NEWEST * (seconds - usual)
        self._takes[project] = (takes, now)
        if len(self._takes) > MOST_PROJECTS:
            self._takes = {name: known for name, known in self._takes.items() if known[0] >= SLOW}
        return (takes >= SLOW) != (usual is not None and usual >= SLOW)

    def waiting(self, aside: Collection[str], full: bool, now: float) -> frozenset[str]:
        """Pages of projects of which one is aside wait for it. Where enough is set aside (``full``), so do those of others that were
        slow: they take turns in the lanes that are aside."""
        if not full:
            return frozenset(aside)
        self._takes = {name: known for name, known in self._takes.items() if known[1] >= now - REMEMBERED}
        return frozenset(aside).union(name for name, known in self._takes.items() if known[0] >= SLOW)

    def waits(self, project: str, now: float) -> None:
        """Pages of it wait, so what it is known for stays known."""
        if project in self._takes:
            self._takes[project] = (self._takes[project][0], now)

    def give_back(self, longest: float, crowded: bool, now: float) -> bool:
        """Whether those that wait go back to their queue now, by the seconds that the ``longest`` page has run; ``crowded``: they keep
        all others from coming in."""
        if now < self._next_give_back and not (crowded and now >= self._gave_back + CROWDED):
            return False
        self._gave_back = now
        self._next_give_back = now + min(max(longest, SLOW), GIVE_BACK)
        return True


class Aside:
    """The lanes that are set aside, and spare ones, which ``make`` makes; parks in ``inbox`` what has to wait for them."""

    def __init__(self, make: Callable[[], Lane], inbox: Inbox) -> None:
        self._make = make
        self._inbox = inbox
        self._turns = Turns()
        self.lanes: list[Lane] = []
        self.spare: list[Lane] = []

    @property
    def full(self) -> bool:
        """Who is known to be slow has to wait."""
        return len(self.lanes) >= ASIDE

    @property
    def has_place(self) -> bool:
        """One more may be set aside."""
        return len(self.lanes) < MOST_ASIDE

    def prepare(self) -> None:
        """Have a spare lane: it takes half a second to come up, and who has quick pages only never needs it."""
        if not self.spare and self.has_place:
            self.spare.append(self._make())
            self.spare[0].child.prepare()

    def put(self, lane: Lane) -> Lane:
        """Set this one aside; another goes on, without the project of its page."""
        self.prepare()
        lane.yield_cpu()
        self._inbox.put_back(lane.take_back())
        self.lanes.append(lane)
        self._park()
        return self.spare.pop()

    def took(self, page: Page, seconds: float) -> None:
        """A page is over, in whatever lane."""
        if self._turns.took(page.task.project, seconds, time.monotonic()) and self.full:
            self._park()

    def over(self, lane: Lane, page: Page, goes_on: bool) -> None:
        """The page of a lane that is aside is over: another takes its turn there, if one waits and the lane ``goes_on``."""
        busy = {other.page.task.project for other in self.lanes if other is not lane and other.page}
        following = self._inbox.get_parked(busy) if goes_on and len(self.lanes) <= ASIDE else None
        if following is not None:
            lane.begin([following])
            if following.task.project != page.task.project:
                self._park()
            return
        self.lanes.remove(lane)
        # it lets others go first for ever, so the next one is run by another child
        lane.child.kill()
        if len(self.lanes) + len(self.spare) < ASIDE:
            self.spare.append(lane)
        else:
            lane.child.close()
        self._park()

    def give_back(self) -> dict[QueueName, list[Page]]:
        """Pages that have waited long enough, which are here no longer: another processor may have time for them; if not, they come back
        to us."""
        longest = max((lane.runs_for for lane in self.lanes), default=None)
        if longest is None or not self._turns.give_back(longest, self._inbox.crowded, time.monotonic()):
            return {}
        waiting = self._inbox.take_parked(suspects=longest >= SUSPECTS_WAIT)
        for project in {page.task.project for pages in waiting.values() for page in pages}:
            self._turns.waits(project, time.monotonic())
        return waiting

    def _park(self) -> None:
        projects = {lane.page.task.project for lane in self.lanes if lane.page}
        self._inbox.park(self._turns.waiting(projects, self.full, time.monotonic()))
