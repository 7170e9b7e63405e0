"""The values that travel between the processes and into the databases; no behaviour beyond names and defaults.

Tasks keep pyspider's shape (behaviour S1 to S6): ``schedule``, ``fetch`` and ``process`` are open dicts, because a key that
is absent means something else than one that is null. Everything of ours around them is typed. All structs are frozen:
a changed value is a new value.
"""

from enum import IntEnum, StrEnum
from typing import Any

from msgspec import Raw, Struct, field


class TaskStatus(IntEnum):
    """The state of a task row (behaviour S2)."""

    ACTIVE = 1
    SUCCESS = 2
    FAILED = 3
    BAD = 4


class ProjectStatus(StrEnum):
    """The states a user sets (behaviour S8). Only DEBUG and RUNNING are worked on."""

    TODO = "TODO"
    STOP = "STOP"
    CHECKING = "CHECKING"
    DEBUG = "DEBUG"
    RUNNING = "RUNNING"


ACTIVE_PROJECT = frozenset({ProjectStatus.DEBUG, ProjectStatus.RUNNING})


class QueueName(StrEnum):
    """The queues between the roles (behaviour Q2), and ours for the scheduler's control work."""

    NEW_TASKS = "newtask_queue"
    STATUS = "status_queue"
    TO_FETCHER = "scheduler2fetcher"
    TO_PROCESSOR = "fetcher2processor"
    CONTROL = "scheduler2processor"
    RESULTS = "processor2result"


class Role(StrEnum):
    """The daemons."""

    SCHEDULER = "scheduler"
    FETCHER = "fetcher"
    PROCESSOR = "processor"
    RESULT_WORKER = "result_worker"


#: the run number of control work, which has no task row to count in
CONTROL_RUN = -1

#: One run of one task: project, taskid, run. For control work the taskid is the control row's id and the run is -1.
RunKey = tuple[str, str, int]


# --- projects -----------------------------------------------------------------------------------------------------------


class Project(Struct, frozen=True, kw_only=True):
    """A row of the projectdb (behaviour S7)."""

    name: str
    group: str | None = None
    status: str = ProjectStatus.TODO
    script: str = ""
    comments: str | None = None
    #: tasks a second and bucket size; ``inf`` stands for unlimited, 0 for never
    rate: float = 1.0
    burst: float = 3.0
    updatetime: float = 0.0
    #: random, made with the row: tells a project from an earlier one of the same name; "" in rows made by pyspider
    generation: str = ""


class ProjectHead(Struct, frozen=True, kw_only=True):
    """A row of the projectdb without its script: what the scheduler looks at to see what changed."""

    name: str
    group: str | None
    status: str
    rate: float
    burst: float
    updatetime: float
    generation: str


class ProjectState(Struct, frozen=True, kw_only=True):
    """A row of the taskdb beside a project's tasks: counts, kept in the transactions that change them."""

    project: str
    generation: str = ""
    active: int = 0
    success: int = 0
    failed: int = 0
    bad: int = 0
    #: of the active ones: those with auto_recrawl, which never end by themselves
    periodic: int = 0
    #: number of the crawl going on; on_finished is entered once for each (behaviour S50)
    crawl: int = 0
    #: something was entered since the last on_finished
    armed: bool = False
    #: cron ticks until then are given out, or need not be, Unix seconds
    last_tick: int = 0
    #: the jobs of its script, and what became of them
    jobs: list["JobState"] = []
    #: automatic pause: when it is or was to end, Unix seconds, 0 if there is none (behaviour S55)
    paused_until: float = 0.0
    #: why it pauses, in words
    pause_reason: str = ""
    #: what its script says of itself, or why it could not be asked, as `control.keep_answer` wrote it; "": nothing is known
    info: str = ""

    @property
    def finished(self) -> bool:
        """No task waits or runs, periodic work aside."""
        return self.active <= self.periodic


class CronJob(Struct, frozen=True):
    """A method that runs by the clock (behaviour H31): each ``every`` seconds, or as ``cron`` says in the zone ``tz``."""

    #: the method; "" stands for all that the tick fits
    name: str = ""
    every: int = 0
    #: minute hour day-of-month month day-of-week, "" for an interval
    cron: str = ""
    tz: str = "UTC"
    #: ticks of it that may wait or run at once; one more is left out
    max_instances: int = 10
    #: seconds after which a tick that was missed is not made up for; None: made up for until the next one is due
    misfire_grace: float | None = None


class JobState(Struct, frozen=True):
    """A job as the scheduler knows it, and what became of its ticks (UA20)."""

    job: CronJob
    #: the tick that ran last (Unix time), 0 if none did; when that ended, and the last line of its exception
    tick: int = 0
    ended: float = 0.0
    error: str = ""
    #: ticks that did not run: how many, the last of them, and why
    missed: int = 0
    missed_tick: int = 0
    missed_why: str = ""


# --- tasks --------------------------------------------------------------------------------------------------------------


class NewTask(Struct, frozen=True, omit_defaults=True):
    """A submission (behaviour S5): from a callback, a feeder or a command."""

    taskid: str
    project: str
    url: str
    schedule: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    process: dict[str, Any] = {}
    #: generation of the project that the sender knew; "" if it knew none
    generation: str = ""


class Task(Struct, frozen=True, kw_only=True):
    """A whole task row (behaviour S1) with our columns (design, section 9)."""

    taskid: str
    project: str
    url: str
    status: int = TaskStatus.ACTIVE
    schedule: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    process: dict[str, Any] = {}
    track: dict[str, Any] = {}
    lastcrawltime: float | None = None
    updatetime: float = 0.0
    #: order of arrival
    seq: int = 0
    #: Unix time from which it may run; None when it is not waiting to run
    due: float | None = None
    priority: int = 0
    #: raised by every commit that ends or restarts a run
    run: int = 0
    #: a restart asked for while a run was in flight; the commit that ends the run applies it
    pending: NewTask | None = None
    #: the next fetch must not send validators (forced or itag changed)
    unconditional: bool = False


class TaskState(Struct, frozen=True, kw_only=True):
    """The columns of a task row that decisions are made from."""

    taskid: str
    status: int
    schedule: dict[str, Any]
    lastcrawltime: float | None
    due: float | None
    priority: int
    run: int
    seq: int
    pending: NewTask | None = None
    unconditional: bool = False


class DueKey(Struct, frozen=True, kw_only=True):
    """What the frontier holds of a task that is due."""

    taskid: str
    priority: int
    due: float
    seq: int


class TaskEnd(Struct, frozen=True, kw_only=True):
    """How a run ends: the columns written by the commit that applies its report (or cancels it: then track is None)."""

    taskid: str
    status: int
    schedule: dict[str, Any]
    due: float | None
    priority: int
    run: int
    updatetime: float
    lastcrawltime: float | None
    #: None leaves the stored track
    track: dict[str, Any] | None
    unconditional: bool = False


class TaskRestart(Struct, frozen=True, kw_only=True):
    """A stored task starts anew (behaviour S19): url, schedule, fetch and process are replaced, it is ACTIVE again."""

    task: NewTask
    due: float
    priority: int
    run: int
    updatetime: float
    unconditional: bool


class TaskPriority(Struct, frozen=True, kw_only=True):
    """A task waits with another priority from now on; which is in its schedule, too."""

    taskid: str
    priority: int
    schedule: dict[str, Any]


class ControlKind(StrEnum):
    """What a control row asks for."""

    INFO = "info"
    START = "start"
    CRON = "cron"
    FINISHED = "finished"
    MESSAGE = "message"
    #: not given to a processor: the scheduler itself deletes the project
    DELETE = "delete"


class Control(Struct, frozen=True, kw_only=True):
    """A row of the control table: work that needs no fetch, entered once, run at least once, deleted by its own report."""

    #: sender + run + index, project + tick, project + crawl ...: entering it twice is entering it once
    id: str
    project: str
    kind: str
    generation: str = ""
    #: the task it shows as: taskid, url, process.callback, fetch.save
    task: NewTask
    created: float = 0.0
    seq: int = 0


# --- what the queues carry ----------------------------------------------------------------------------------------------


class Dispatch(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One run of a task as it is given out (behaviour S6): crawl_config is joined, everything a worker needs is inside."""

    taskid: str
    project: str
    url: str
    run: int = 0
    generation: str = ""
    #: id of the control row, "" for a task
    control: str = ""
    schedule: dict[str, Any] = {}
    fetch: dict[str, Any] = {}
    process: dict[str, Any] = {}
    track: dict[str, Any] = {}
    status: int = TaskStatus.ACTIVE
    lastcrawltime: float | None = None
    group: str | None = None
    #: md5 of the script this run is meant for
    project_md5sum: str = ""
    project_updatetime: float = 0.0
    #: the project's status is DEBUG
    debug: bool = False
    unconditional: bool = False
    #: a processor died with it in hand: it is run alone, and named in a beat before it begins
    suspect: bool = False

    @property
    def key(self) -> RunKey:
        """How leases, claims and beats name this run."""
        return (self.project, self.control or self.taskid, self.run)


class FetchResponse(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a fetch gave (behaviour F10); a failure is status 599 with ``error`` and ``error_kind``."""

    status_code: int = 599
    url: str = ""
    orig_url: str = ""
    headers: dict[str, str] = {}
    #: bytes, or str where the fetcher had text already; msgspec refuses a union of the two, msgpack tells them apart
    content: Any = b""
    cookies: dict[str, str] = {}
    #: seconds
    time: float = 0.0
    save: Any = None
    error: str | None = None
    traceback: str | None = None
    js_script_result: Any = None
    #: dns connect tls timeout too-large truncated redirects protocol proxy robots invalid-url refused-address
    #: browser (wanted, and there is none: without ``error``), or None
    error_kind: str | None = None
    #: seconds from the start to the end of each phase: dns connect tls first_byte total
    timings: dict[str, float] = {}
    #: each hop: status, url, cookies set on it
    redirects: list[dict[str, Any]] = []
    #: seconds that a 429 or 503 asked us to wait
    retry_after: float | None = None
    #: the proxy used, password masked
    proxy: str | None = None

    def __post_init__(self) -> None:
        # of a message that somebody else made: it cannot be read, like any whose types are wrong
        if not isinstance(self.content, bytes | str):
            raise TypeError(f"content is a {type(self.content).__name__}, neither bytes nor text")


class Page(Struct, frozen=True, omit_defaults=True):
    """A fetched task on its way to a processor."""

    task: Dispatch
    response: FetchResponse


class Item(Struct, frozen=True):
    """One result of a run; ``item`` tells the items of one page apart ("" when it returned a single one)."""

    item: str
    #: JSON text
    result: str


class Message(Struct, frozen=True):
    """What ``send_message`` sent (behaviour H61)."""

    project: str
    message: Any
    url: str


#: in the place of a part's number (with ``parts`` 0): a dead letter's results on their second way to the resultdb
RETRIED = -1


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="report"):
    """All that one run of a callback produced. It is applied whole, or not at all (design, section 4)."""

    project: str
    taskid: str
    url: str
    run: int
    generation: str = ""
    control: str = ""
    ok: bool = True
    #: {"fetch": {...}, "process": {...}, "save": ...} (behaviour P20 to P22); empty in all parts but the last
    track: dict[str, Any] = {}
    follows: list[NewTask] = []
    messages: list[Message] = []
    items: list[Item] = []
    #: given when there are items: what a user's ResultWorker sees as its task
    task: NewTask | None = None
    #: numbered from 0; a report that fits is part 0 of 1; RETRIED: results of a run that is over, of which nobody is to hear
    part: int = 0
    #: stated by the last part only: how many there are; 0 in the others
    parts: int = 1
    #: @not_send_status: close the lease, leave the row as it is
    no_status: bool = False
    #: seconds before which it should not be tried again
    retry_after: float | None = None
    #: answer to _on_get_info (behaviour H63); of a cron job: why it left its tick out
    info: dict[str, Any] | None = None

    @property
    def key(self) -> RunKey:
        """The run it reports on."""
        return (self.project, self.control or self.taskid, self.run)


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
    #: "" for at work, else "paused", "draining", "drained" or "stopping" (somebody ordered it); a scheduler: "leading" or "standing by"
    state: str = ""
    #: what it cannot reach now, and since when (Unix time)
    waiting: dict[str, float] = {}
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


class Broken(Struct, frozen=True, kw_only=True, tag="broken"):
    """A message that could not be read, or a result that could not be stored, to be kept aside with the reason."""

    queue: str
    reason: str
    #: the beginning of it
    body: bytes
    #: bytes that it had
    size: int = 0
    worker: str = ""
    time: float = 0.0
    #: a LetterKind
    kind: str = "message"
    project: str = ""
    taskid: str = ""


class TaskBatch(Struct, frozen=True, kw_only=True, tag="tasks"):
    """scheduler2fetcher."""

    batch: str
    epoch: int
    tasks: list[Dispatch]
    #: how many processors live: fetchers hold back while more than a few batches a processor wait
    processors: int = 1


class PageBatch(Struct, frozen=True, kw_only=True, tag="pages"):
    """fetcher2processor and scheduler2processor (there the scheduler made the responses)."""

    batch: str
    pages: list[Page]


class ResultBatch(Struct, frozen=True, kw_only=True, tag="results"):
    """processor2result: reports that carry items."""

    batch: str
    reports: list[Report]


StatusItem = Beat | Claim | Handover | Release | Report | Broken


class StatusBatch(Struct, frozen=True, kw_only=True, tag="status"):
    """status_queue: whatever one worker had to say, in its order."""

    items: list[StatusItem]


class NewTaskBatch(Struct, frozen=True, kw_only=True, tag="new"):
    """newtask_queue. Tasks stay encoded, so that one bad task does not take the others with it."""

    tasks: list[Raw]


# --- results ------------------------------------------------------------------------------------------------------------


class TaskResult(Struct, frozen=True, kw_only=True):
    """The items of one run (or one part of it) for the resultdb."""

    project: str
    taskid: str
    url: str
    run: int
    generation: str = ""
    items: list[Item] = field(default_factory=list)
    #: the last part of a successful run: items of earlier runs are dropped
    replace: bool = False
    #: with ``replace``: these are all items of the run, so what an earlier try of the same run stored besides is dropped too
    complete: bool = False


class ResultRow(Struct, frozen=True, kw_only=True):
    """One stored item."""

    taskid: str
    url: str
    #: JSON text
    result: str
    updatetime: float
    item: str = ""
    run: int = 0
    seq: int = 0


class LetterKind(StrEnum):
    """What a dead letter was."""

    #: a message of a queue (or one task in it) that could not be read
    MESSAGE = "message"
    #: a submission that could not be stored
    SUBMISSION = "submission"
    #: a report that could not be stored, not even as a failure
    REPORT = "report"
    #: a task that was given up, not because its retries were used up: workers died over it, or no queue carries it
    TASK = "task"
    #: the results of a run that could not be stored; the run has failed
    RESULT = "result"
    #: control work that `doctor --repair` set aside: unreadable, or of a project that does not exist
    CONTROL = "control"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """Something that was given up: kept with its payload and the reason."""

    #: a LetterKind
    kind: str
    queue: str = ""
    project: str = ""
    taskid: str = ""
    reason: str
    #: what could not be used, or its beginning; of a task nothing, for its row is there
    payload: bytes
    #: bytes that it had
    size: int = 0
    time: float
    #: its id, given by the database
    seq: int = 0

    @property
    def cut(self) -> bool:
        """Only the beginning was kept, so it can be looked at but not used again."""
        return self.size > len(self.payload)


class LetterCount(Struct, frozen=True, kw_only=True):
    """How many dead letters there are of one kind in one project ("" for those of no project)."""

    project: str
    kind: str
    count: int
    #: of their payloads
    bytes: int
