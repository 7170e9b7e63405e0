"""One run of a task on its way out: as it is given to a fetcher, and with what was fetched to a processor."""

from typing import Any

from msgspec import Struct

from pyspider_lite.models.names import RunKey
from pyspider_lite.models.task import TaskStatus


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
    #: when it was given out, database time in ms, and not before the epoch of the scheduler that did: of a run that is given out twice
    #: the later one has the greater number
    epoch: int = 0

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
