"""What a worker says of itself and of the runs that it holds, and what it is told."""

from enum import StrEnum

from msgspec import Struct

from pyspider_lite.models.names import RunKey


class Alone(Struct, frozen=True):
    """The task (or control work) that goes alone, or is about to: all else waits for it."""

    project: str
    taskid: str
    #: Unix time
    since: float


class Beat(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="beat"):
    """A worker says every 2 s that it lives, and what it has in hand."""

    #: host + boot nonce
    worker: str
    role: str
    host: str
    pid: int
    version: str = ""
    config_hash: str = ""
    #: tasks it can have in hand at once
    pool_size: int = 0
    #: tasks in hand
    load: int = 0
    #: tasks finished since it started
    progress: int = 0
    #: batch id -> its runs that are still in hand
    holds: dict[str, list[RunKey]] = {}
    #: the run that it executes now
    running: RunKey | None = None
    #: address of its XML-RPC server, "" if it has none
    rpc: str = ""
    #: address of its health port, "" if it has none
    health: str = ""
    #: a class of the user works here: what it does may end the process (of processors that is known)
    own_class: bool = False
    #: "" for at work, else "paused", "draining", "drained" or "stopping" (somebody ordered it); a scheduler: "leading" or "standing by"
    state: str = ""
    #: what it cannot reach now, and since when (Unix time)
    waiting: dict[str, float] = {}
    #: why, as far as it knows
    reasons: dict[str, str] = {}
    #: of a scheduler that leads
    alone: Alone | None = None
    #: it leaves and holds nothing any more
    leaving: bool = False
    #: its clock when it said so, Unix time; 0: it did not say
    time: float = 0.0


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A process of the cluster as the leader last heard of it; schedulers, stand-bys too, enter themselves."""

    beat: Beat
    #: database time of the last beat
    seen: float
    #: tasks finished a second, over the last minute
    rate: float = 0.0


class OrderKind(StrEnum):
    """What a worker may be ordered to do (`cluster pause|resume|drain|stop`)."""

    #: take nothing new, finish what is in hand
    PAUSE = "pause"
    #: likewise, and give back what was not started
    DRAIN = "drain"
    #: the end of both
    RESUME = "resume"
    #: as SIGTERM, but with exit code 0
    STOP = "stop"


class Order(Struct, frozen=True, kw_only=True, tag="order"):
    """The queue ``orders.WORKER`` of one worker. ``order`` is an OrderKind; a worker ignores one that it does not know."""

    id: str
    order: str
    #: Unix time at which it was given
    time: float


class Claim(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="claim"):
    """A worker took a batch off a queue."""

    worker: str
    queue: str
    batch: str
    runs: list[RunKey] = []


class Handover(Struct, frozen=True, kw_only=True, tag="handover"):
    """A worker put runs that it held onto a queue, as a new batch (sent just before or after the batch itself)."""

    worker: str
    queue: str
    batch: str
    runs: list[RunKey]


class Release(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="release"):
    """A worker gives runs back that are not over; they are given out again at once."""

    worker: str
    runs: list[RunKey]
    #: they had begun, and did not end in the time that the worker had left: that counts as a death of a worker over them
    cut_off: bool = False
