"""The scheduler's numbers for `/metrics` and for the log. Its state belongs to its loop, so the loop reads them; asked by `daemon`."""

import heapq
from collections import Counter
from concurrent.futures import Future

from pyspider_lite.counters import Counters
from pyspider_lite.readings import Reading
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.scheduler import Scheduler

#: seconds to wait for the loop, which may be waiting for a database
DEADLINE = 3.0


#: what the line in the log counts, as it calls them (behaviour S71)
_IN_THE_LOG = {"pending": "new", "success": "success", "retry": "retry", "failed": "failed"}
#: projects that it names, and how many of them for their failures
_NAMED, _NAMED_FAILING = 5, 2


def summary(counters: Counters, now: float) -> str:
    """The line for the log each minute (behaviour S71): the last five minutes, and the most failing and most active projects with
    their four numbers. "" if nothing happened."""
    counted = {
        name: [int(names.get(event, 0)) for event in _IN_THE_LOG]
        for name, names in counters.get(now, "5m").items()
        if name and any(event in names for event in _IN_THE_LOG)
    }
    if not counted:
        return ""
    failing = heapq.nlargest(
        _NAMED_FAILING, (name for name in counted if counted[name][-1]), key=lambda name: counted[name][-1]
    )
    rest = (name for name in counted if name not in failing)
    active = heapq.nlargest(_NAMED - len(failing), rest, key=lambda name: sum(counted[name]))
    totals = zip(_IN_THE_LOG.values(), (sum(numbers) for numbers in zip(*counted.values(), strict=True)), strict=True)
    line = "in 5m: " + ",".join(f"{word}:{total}" for word, total in totals)
    return " ".join([line, *(f"{name}:{','.join(map(str, counted[name]))}" for name in active + failing)])


def ask(inbox: Inbox | None) -> list[Reading]:
    """All of them; only whether it leads while it does not, or while its loop does not answer in time."""
    leading = Reading("leading", "Whether this scheduler leads", {"": float(inbox is not None)})
    if inbox is None:
        return [leading]
    answer: Future[list[Reading]] = Future()

    def read(scheduler: Scheduler) -> None:
        try:
            answer.set_result(_of(scheduler))
        except Exception as error:  # the asker's, not the loop's
            answer.set_exception(error)

    inbox.command(read)
    try:
        return [leading, *answer.result(DEADLINE)]
    except TimeoutError:
        return [leading]


def _of(scheduler: Scheduler) -> list[Reading]:
    """No label has a project's name: there may be any number of them."""
    projects = scheduler.projects.values()
    counts = {
        name: sum(getattr(one.counts, name) for one in projects) for name in ("active", "success", "failed", "bad")
    }
    statuses = Counter(one.head.status for one in projects)
    paused = sum(one.pause.paused(scheduler.now) for one in projects)
    events: Counter[str] = Counter()
    for names in scheduler.counters.get(scheduler.now, "all").values():
        events.update({name: int(count) for name, count in names.items()})
    flying = {"task": len(scheduler.leases) - scheduler.leases.controls, "control": scheduler.leases.controls}
    workers = Counter(worker.beat.role for worker in scheduler.leases.workers.values())
    return [
        Reading("tasks", "Stored tasks", counts, "status"),
        Reading("projects", "Projects", statuses, "status"),
        Reading("projects_paused", "Projects that pause because everything failed", {"": paused}),
        Reading("in_flight", "Runs that were given out and are not over", flying, "kind"),
        Reading("given_out", "Runs given out", scheduler.given_out, "kind", counter=True),
        Reading("events", "What happened to tasks", events, "event", counter=True),
        Reading("dead_letters", "Dead letters, as counted last", scheduler.dead_letters.counts, "kind"),
        Reading(
            "dead_letters_dropped",
            "Dead letters that were dropped because there were too many",
            {"": scheduler.dead_letters.dropped},
            counter=True,
        ),
        Reading("backlog", "Reports and submissions that wait for their commit", {"": scheduler.backlog}),
        Reading("workers", "Workers that beat", workers, "role"),
        Reading("queue_depth", "Messages in each queue, as measured last", scheduler.depths, "queue"),
    ]
