"""What can be wrong with the processes of a cluster, its clocks, versions and queues, one sentence each. Pure; called by `doctor`."""

from collections.abc import Iterable, Iterator

from pyspider_lite.cli import cluster_view
from pyspider_lite.cli.cluster_view import View, idle
from pyspider_lite.cli.picture import REPAIR, Found, Picture, Remedy, some
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.worker import WorkerRow

#: seconds by which a clock may differ; behind it is only believed while no more messages than that wait to be heard
CLOCK_SLACK, CLOCK_DEPTH = 10.0, 20
#: seconds for which a worker may wait for a server
WAIT_SLACK = 10.0
#: who reads which queues
_READERS: dict[Role, tuple[QueueName, ...]] = {
    Role.FETCHER: (QueueName.TO_FETCHER,),
    Role.PROCESSOR: (QueueName.TO_PROCESSOR, QueueName.CONTROL),
    Role.RESULT_WORKER: (QueueName.RESULTS,),
}
#: queues that may be emptied at any time: what was in them is given out again (docs/architecture.md)
_WORK = (QueueName.TO_FETCHER, QueueName.TO_PROCESSOR, QueueName.CONTROL)


def check(picture: Picture) -> Iterator[Found]:
    """All of it, in the order in which it should be mended."""
    for one in (_leader, _roles, _alone, _waiting, _clocks, _versions, _queues):
        yield from one(picture)


def _leader(picture: Picture) -> Iterator[Found]:
    view = picture.view
    schedulers = [row.beat.worker for row in view.workers or () if row.beat.role == Role.SCHEDULER and view.alive(row)]
    if view.held and view.leader is not None:
        yield Found(
            "leader",
            "held",
            f"the leader row gives the lead to {view.leader.holder} for another {view.leader.until - view.now:.0f} s, and nobody renews "
            f"it, so no scheduler can lead: the database's clock went back; {REPAIR} sets the lead free",
            Remedy.LEADER,
        )
    elif not view.leads and schedulers:
        yield Found(
            "leader",
            "none",
            f"no scheduler leads although {some(schedulers)} lives: its log says what it waits for; restart it if that does not pass",
        )
    elif not view.leads:
        waiting = _waits(view, (QueueName.STATUS, QueueName.NEW_TASKS))
        yield Found(
            "cluster",
            Role.SCHEDULER,
            f"no scheduler is running{waiting}, so nothing is given out: start one (`pyspider_lite scheduler`, or `all`)",
        )


def _roles(picture: Picture) -> Iterator[Found]:
    view = picture.view
    if not view.leads or view.workers is None or view.depths is None:
        return  # nobody hears the others
    for role, there in idle(view).items():
        waiting = _waits(view, _READERS[role])
        text, todo = (
            f"no {role} is running",
            f"start one (`pyspider_lite {role}`) with the same message-queue and queue-prefix",
        )
        if there:
            text, todo = f"all {role}s are paused", f"`pyspider_lite cluster resume {role}` has them work again"
        yield Found("cluster", role, f"{text}{waiting}: {todo}")


def _waits(view: View, queues: Iterable[QueueName]) -> str:
    depths = {name: (view.depths or {}).get(name, 0) for name in queues}
    waiting = [f"{depth} message{'s' * (depth != 1)} in {name}" for name, depth in depths.items() if depth]
    return f", with {' and '.join(waiting)}" if waiting else ""


def _live(view: View) -> list[WorkerRow]:
    return [row for row in view.sorted() if view.alive(row)]


def _alone(picture: Picture) -> Iterator[Found]:
    view = picture.view
    for row in _live(view):
        if alone := row.beat.alone:
            name, taskid = alone.project, alone.taskid
            yield Found(
                "alone",
                f"{name}:{taskid}",
                f"nothing else is given out for {view.now - alone.since:.0f} s, until {name}:{taskid} is over, which goes alone: it ran "
                f"whenever everything on its machine was killed. `explain {name} {taskid}` tells more, `project stop {name}` ends it",
            )


def _waiting(picture: Picture) -> Iterator[Found]:
    view = picture.view
    waiting: dict[str, tuple[float, list[str]]] = {}
    reasons: dict[str, str] = {}
    for row in _live(view):
        for what, since in cluster_view.waiting(view, row).items():
            first, workers = waiting.get(what, (since, []))
            waiting[what] = (min(first, since), [*workers, row.beat.worker])
            reasons.update(row.beat.reasons)
    for what, (since, workers) in sorted(waiting.items()):
        if view.now - since > WAIT_SLACK:
            length = f"{view.now - since:.0f} s"
            yield Found(
                "waiting",
                what,
                f"{some(workers)}: waiting for {what} for {length}: {reasons[what]}"
                if what in reasons
                else f"{some(workers)} cannot reach {what} for {length}: see that it runs and can be reached from there",
            )


def _clocks(picture: Picture) -> Iterator[Found]:
    if abs(picture.ahead) > CLOCK_SLACK:
        yield Found("clock", "here", f"the clock of this machine {_off(picture.ahead)}: {_SET_CLOCK}")
    view = picture.view
    heard_at_once = (view.depths or {}).get(QueueName.STATUS, 0) <= CLOCK_DEPTH
    hosts: dict[str, float] = {}
    for row in _live(view):
        ahead = row.beat.time - row.seen
        # what waited to be heard looks as if its clock were behind
        if row.beat.time and (ahead > CLOCK_SLACK or (ahead < -CLOCK_SLACK and heard_at_once)):
            hosts.setdefault(row.beat.host, ahead)
    for host, ahead in sorted(hosts.items()):
        yield Found("clock", host, f"the clock of {host} {_off(ahead)}: {_SET_CLOCK}")


_SET_CLOCK = "times in its logs and results are wrong; have NTP set it"


def _off(ahead: float) -> str:
    return f"is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} the database's"


def _versions(picture: Picture) -> Iterator[Found]:
    view = picture.view
    versions: dict[str, list[str]] = {}
    for row in _live(view):
        versions.setdefault(row.beat.version, []).append(f"{row.beat.role} {row.beat.worker}")
    leader = view.leader_row
    right = leader.beat.version if leader is not None and view.alive(leader) else picture.version
    for version, workers in sorted(versions.items()):
        if version != right:
            whose = "the scheduler that leads" if leader is not None else "this program"
            yield Found(
                "version",
                version,
                f"{some(workers)} runs version {version or 'unknown'}, {whose} {right}: install one version everywhere and restart",
            )
    if versions and picture.version not in versions:
        yield Found(
            "version", "here", f"this command is version {picture.version}, the cluster {right}: install that one here"
        )


def _queues(picture: Picture) -> Iterator[Found]:
    """Messages of work that no table knows."""
    if picture.view.depths is None or picture.controls or any(state.active for state in picture.states.values()):
        return
    for name in _WORK:
        depth = picture.view.depths.get(name, 0)
        if depth:
            yield Found(
                "queue",
                name,
                f"{depth} message{'s' * (depth != 1)} in {name}, and no table has a task that is under way: left over from another "
                f"taskdb, or two clusters share a queue-prefix; {REPAIR} empties the queue",
                Remedy.PURGE,
            )
