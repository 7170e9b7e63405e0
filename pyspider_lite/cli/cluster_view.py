"""What `cluster list` knows, what follows from it, and how it is shown. Nothing here asks anybody."""

import time
from collections.abc import Iterator
from typing import Any

from msgspec import Struct

from pyspider_lite.database.base import Leader
from pyspider_lite.models.names import Role
from pyspider_lite.models.worker import WorkerRow

#: seconds without a beat after which a worker is silent: three beats, and the time that the list takes
SILENT_AFTER = 10.0
#: the same of a scheduler: it writes itself down each 2 s, and nobody has to hear it
SCHEDULER_SILENT_AFTER = 5.0
#: seconds ahead of which no leader row is: a term has five
HELD_OVER = 60.0
#: seconds after which a silent worker is no longer shown in the table
GONE_AFTER = 60.0
#: silent workers that are named
_NAMED = 10
#: said below the table, for whoever looks for them in it
NOT_LISTED = "not listed: phantomjs and puppeteer, which hold a place, do no work yet and send no beats (supervisorctl status shows them)"
_NEEDED = (Role.FETCHER, Role.PROCESSOR, Role.RESULT_WORKER)


class View(Struct, kw_only=True):
    """The cluster, as far as it could be seen. ``workers`` and ``depths`` are None when their server did not answer."""

    #: database time
    now: float = 0.0
    leader: Leader | None = None
    workers: list[WorkerRow] | None = None
    #: queue -> messages that wait
    depths: dict[str, int] | None = None
    #: dead letters by kind
    letters: dict[str, int] = {}
    #: of the settings of whoever asks
    config_hash: str = ""
    #: silent schedulers that answer by XML-RPC: what they cannot reach, and since when (Unix time)
    answers: dict[str, dict[str, float]] = {}
    #: why the broker takes no messages, as far as that was tried
    refusal: str = ""
    #: what could not be asked, in sentences
    problems: list[str] = []

    def age(self, row: WorkerRow) -> float:
        """Seconds since it was heard last."""
        return max(0.0, self.now - row.seen)

    def alive(self, row: WorkerRow) -> bool:
        """It was heard not long ago, or answers now."""
        if row.beat.role != Role.SCHEDULER:
            return self.age(row) <= SILENT_AFTER
        return self.age(row) <= SCHEDULER_SILENT_AFTER or self.is_leader(row) or row.beat.worker in self.answers

    @property
    def leads(self) -> bool:
        """A scheduler leads now."""
        return self.leader is not None and self.leader.until > self.now and not self.held

    @property
    def held(self) -> bool:
        """The leader row names somebody for so much longer than any scheduler leads at a time that nobody will lead soon."""
        return self.leader is not None and self.leader.until > self.now + HELD_OVER

    @property
    def hears_nobody(self) -> bool:
        """A scheduler leads, and no other worker was heard for long."""
        return self.leads and not any(row.beat.role != Role.SCHEDULER and self.alive(row) for row in self.workers or ())

    def is_leader(self, row: WorkerRow) -> bool:
        """This row is the scheduler that leads."""
        return self.leads and self.leader is not None and _holds(self.leader, row)

    @property
    def leader_row(self) -> WorkerRow | None:
        """The scheduler that leads, if it is on the list."""
        return next(filter(self.is_leader, self.workers or ()), None)

    def sorted(self) -> list[WorkerRow]:
        """Schedulers first, then along a task's way."""
        order = list(Role)
        rank = {str(role): order.index(role) for role in order}
        return sorted(self.workers or (), key=lambda row: (rank.get(row.beat.role, 9), row.beat.worker))


def _holds(leader: Leader, row: WorkerRow) -> bool:
    return leader.holder.startswith(f"{row.beat.worker}:")


def missing(view: View) -> list[str]:
    """What the cluster lacks, in sentences; [] when it is complete."""
    found = list(view.problems)
    if view.workers is None:
        return found
    if not view.leads:
        live = [row for row in view.workers if view.alive(row)]
        found += _why_nobody_leads(view, [row for row in live if row.beat.role == Role.SCHEDULER])
        if any(row.beat.role != Role.SCHEDULER for row in view.workers):
            found.append("nobody hears the other workers meanwhile: what is shown of them is from before")
        return found
    if view.hears_nobody:
        return [*found, f"a scheduler leads, but hears no worker{_why_nobody_is_heard(view)}"]
    found += (f"all {role}s are paused" if there else f"no {role} is running" for role, there in idle(view).items())
    return found + _held_up(view)


def _held_up(view: View) -> list[str]:
    """The roles of which all that are at work wait for something."""
    found = []
    for role in _NEEDED:
        at_work = [
            row for row in view.workers or () if row.beat.role == role and view.alive(row) and not row.beat.state
        ]
        away = [waiting(view, row) for row in at_work]
        if away and all(away):
            found.append(f"every {role} waits for {' and '.join(sorted({what for one in away for what in one}))}")
    return found


def _why_nobody_is_heard(view: View) -> str:
    if view.refusal:
        return f": {view.refusal}"
    away = sorted(view.leader_row.beat.waiting) if view.leader_row is not None else []
    if view.depths is None:
        away = away or ["the message-queue"]
    if away:
        return f" while it waits for {' and '.join(away)}"
    return ": do they run, with the same message-queue and queue-prefix?"


def _why_nobody_leads(view: View, schedulers: list[WorkerRow]) -> list[str]:
    if view.held:
        return ["no scheduler can lead, because the leader row is held: run doctor"]
    if not schedulers:
        return ["no scheduler is running"]
    found = ["no scheduler leads"]
    for row in schedulers:
        found += [
            f"scheduler {row.beat.worker} waits for {where} since {time.strftime('%Y-%m-%d %H:%M:%S', time.localtime(since))}"
            for where, since in sorted(waiting(view, row).items())
        ]
    return found


def waiting(view: View, row: WorkerRow) -> dict[str, float]:
    """What a worker cannot reach, and since when (Unix time), as it says now or said last."""
    return view.answers.get(row.beat.worker, row.beat.waiting)


def idle(view: View) -> dict[Role, bool]:
    """The roles of which nobody is at work; true if some are there and paused."""
    states = {
        role: [row.beat.state for row in view.workers or () if row.beat.role == role and view.alive(row)]
        for role in _NEEDED
    }
    return {role: bool(said) for role, said in states.items() if "" not in said}


def state(view: View, row: WorkerRow) -> str:
    """What a worker does, in a word or two."""
    if not view.alive(row):
        return "silent"
    if row.beat.role == Role.SCHEDULER:
        if view.is_leader(row):
            return "leading"
        if waiting(view, row):
            return "waiting"
        # it said so last; a beat ago it may have been true
        return "lost the lead" if row.beat.state == "leading" else "standing by"
    return row.beat.state or "at work"


def notes(view: View, row: WorkerRow) -> list[str]:
    """What is odd about a worker."""
    beat, found = row.beat, []
    leader = view.leader_row
    if leader is not None and row is not leader:
        if beat.config_hash != leader.beat.config_hash:
            found.append("other config")
        if beat.version != leader.beat.version:
            found.append("other version")
    if leader is row and view.config_hash and beat.config_hash != view.config_hash:
        found.append("other config than here")
    for what, since in sorted(waiting(view, row).items()):
        why = f": {beat.reasons[what]}" if what in beat.reasons else ""
        found.append(f"waits for {what} since {_ago(view.now - since)}{why}")
    if (alone := beat.alone) and view.alive(row):
        found.append(
            f"all waits for {alone.project}:{alone.taskid}, which goes alone, since {_ago(view.now - alone.since)}"
        )
    return found


def as_records(view: View) -> Iterator[dict[str, Any]]:
    """One object a worker, one for the leader, one for the queues, one for each thing that is missing."""
    for row in view.sorted():
        beat = row.beat
        yield {
            "type": "worker", "worker": beat.worker, "role": beat.role, "host": beat.host, "pid": beat.pid,
            "version": beat.version, "state": state(view, row), "load": beat.load, "pool": beat.pool_size,
            "rate": round(row.rate, 2), "age": round(view.age(row), 1), "rpc": beat.rpc, "health": beat.health,
            "config": beat.config_hash, "waiting": beat.waiting, "reasons": beat.reasons, "notes": notes(view, row),
        }  # fmt: skip
    if view.workers is not None:
        leader = view.leader if view.leads else None
        yield {
            "type": "leader",
            "holder": leader.holder if leader else None,
            "epoch": leader.epoch if leader else None,
            "rpc": leader.rpc if leader else None,
        }
    if view.depths is not None:
        yield {"type": "queues", **view.depths}
    if view.letters:
        yield {"type": "dead_letters", **view.letters}
    for sentence in missing(view):
        yield {"type": "missing", "text": sentence}


def as_lines(view: View) -> Iterator[str]:
    """For people."""
    rows = view.sorted()
    shown = [row for row in rows if view.age(row) <= GONE_AFTER or not view.leads]
    if shown:
        head = ("role", "worker", "version", "load", "rate", "beat", "state", "rpc", "health", "")
        yield from _table([head, *(_cells(view, row) for row in shown)])
        yield ""
        yield NOT_LISTED
    gone = sorted((row for row in rows if row not in shown), key=view.age)
    if gone:
        named = ", ".join(f"{row.beat.role} {row.beat.worker} ({_ago(view.age(row))})" for row in gone[:_NAMED])
        more = f" and {len(gone) - _NAMED} more" if len(gone) > _NAMED else ""
        yield f"not heard for long, forgotten after a day: {named}{more}"
    if view.workers is not None:
        yield from _about_leader(view, rows)
    if view.depths is not None:
        yield "queues: " + ", ".join(f"{name} {depth}" for name, depth in view.depths.items())
    if view.letters:
        yield "dead letters: " + ", ".join(f"{kind} {count}" for kind, count in sorted(view.letters.items()))
    for sentence in missing(view):
        yield f"missing: {sentence}"


def _about_leader(view: View, rows: list[WorkerRow]) -> Iterator[str]:
    if view.leads and view.leader is not None:
        row = view.leader_row
        name = row.beat.worker if row is not None else view.leader.holder
        yield f"leader: {name}, epoch {view.leader.epoch}" + (f", {view.leader.rpc}" if view.leader.rpc else "")
    elif view.leader is None:
        yield "leader: nobody, and there was none yet"
    else:
        last = next((row.beat.worker for row in rows if _holds(view.leader, row)), view.leader.holder)
        if view.held:
            yield f"leader: nobody; the row gives the lead to {last} for another {_ago(view.leader.until - view.now)}"
        elif not view.leader.until:
            yield f"leader: nobody; the last one, {last}, epoch {view.leader.epoch}, gave the lead back"
        else:
            ago = _ago(view.now - view.leader.until)
            yield f"leader: nobody; until {ago} ago it was {last}, epoch {view.leader.epoch}"
    waits = [row.beat.worker for row in rows if state(view, row) == "standing by"]
    if waits:
        yield f"standing by: {', '.join(waits)}"


def _cells(view: View, row: WorkerRow) -> tuple[str, ...]:
    beat = row.beat
    scheduler = beat.role == Role.SCHEDULER
    return (
        beat.role,
        beat.worker,
        beat.version,
        str(beat.load) if scheduler else f"{beat.load}/{beat.pool_size}",
        "" if scheduler else f"{row.rate:.1f}/s",
        f"{_ago(view.age(row))} ago",
        _state_shown(view, row),
        beat.rpc.removeprefix("http://").rstrip("/"),
        beat.health.removeprefix("http://").rstrip("/"),
        "; ".join(notes(view, row)),
    )


def _state_shown(view: View, row: WorkerRow) -> str:
    found = state(view, row)
    return f"silent for {_ago(view.age(row))}" if found == "silent" else found


def _table(lines: list[tuple[str, ...]]) -> Iterator[str]:
    """Aligned; columns that nobody uses are left out."""
    used = [column for column in zip(*lines, strict=True) if any(column[1:])]
    widths = [max(map(len, column)) for column in used]
    for line in zip(*used, strict=True):
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _ago(seconds: float) -> str:
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"
