"""What is reported on one run of a callback: the track (behaviour P20 to P24), failures, and cutting what is large into parts.

Pure. The runner makes reports of callbacks that ended, the processor of children that did not.
"""

from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from pyspider_lite import codec
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.report import Item, Report
from pyspider_lite.models.task import NewTask

#: above one of these a report travels in parts (design, section 4)
PART_FOLLOWS = 1000
PART_BYTES = 1_000_000
#: a follow-up or a result that is larger than this cannot be sent
MAX_PIECE = 8 * 1024 * 1024
#: characters (behaviour P21, P22)
_CONTENT, _LOGS = 500, 1000


class FetchSeen(Struct, frozen=True):
    """What the track of a fetch needs and only the response as scripts see it can tell."""

    ok: bool
    #: None if nobody asked for it
    encoding: str | None = None
    #: the beginning of the text is shown when the run failed
    text: str = ""


def clean(text: str) -> str:
    """``text`` without lone surrogates, which have no encoding (demand UA41)."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode()


def fetch_track(response: FetchResponse, seen: FetchSeen, failed: bool) -> dict[str, Any]:
    """track.fetch (behaviour P21): all headers and the beginning of the content only when the run failed; the kind of an error, if
    there was one."""
    headers = response.headers
    if not failed:
        wanted = ("etag", "last-modified")
        headers = {name.lower(): value for name, value in headers.items() if name.lower() in wanted} if headers else {}
    moved = response.url != response.orig_url and bool(response.orig_url)
    track = {
        "ok": seen.ok,
        "redirect_url": response.url if moved else None,
        "time": response.time,
        "error": response.error,
        "status_code": response.status_code,
        "encoding": seen.encoding,
        "headers": headers,
        "content": clean(seen.text[:_CONTENT]) if failed else None,
    }
    return {**track, "error_kind": response.error_kind} if response.error_kind else track


def process_track(
    seconds: float,
    exception: str | None,
    logs: str,
    *,
    follows: int = 0,
    shown: str | None = None,
    dropped: dict[str, int] | None = None,
    error: str = "",
) -> dict[str, Any]:
    """track.process (behaviour P22); besides, where links were dropped how many, by reason (``dropped``), and the class of the exception
    that the callback raised (``error``)."""
    track = {
        "ok": exception is None,
        "time": seconds,
        "follows": follows,
        "result": shown if shown is None else clean(shown),
        "logs": clean(logs[-_LOGS:]),
        "exception": exception if exception is None else clean(exception),
    }
    if error:
        track["error"] = error
    return {**track, "dropped": dropped} if dropped else track


def failure(page: Page, exception: str, logs: str, seconds: float, seen: FetchSeen | None = None) -> Report:
    """The report on a run that failed outside the callback; the task's save is kept (FIX X-P6)."""
    task, response = page.task, page.response
    return Report.of(
        task,
        ok=False,
        track={
            "fetch": fetch_track(response, seen or glance(response), failed=True),
            "process": process_track(seconds, exception, logs),
            "save": task.track.get("save") or {},
        },
        retry_after=response.retry_after,
    )


def glance(response: FetchResponse) -> FetchSeen:
    """What can be seen of a response without the means that scripts have."""
    status = response.status_code
    content = response.content
    text = content[: 4 * _CONTENT].decode("utf-8", "replace") if isinstance(content, bytes) else content
    return FetchSeen(ok=status == 304 or (response.error is None and status < 400), text=text)


def new_task(task: Dispatch) -> NewTask:
    """The task as a user's ResultWorker sees it (behaviour P40)."""
    return NewTask(
        taskid=task.taskid,
        project=task.project,
        url=task.url,
        schedule=task.schedule,
        fetch=task.fetch,
        process=task.process,
        generation=task.generation,
    )


def parts(report: Report, sent: int = 0) -> list[Report]:
    """The report as it is sent: itself if it is small, else numbered parts that carry follow-ups and results; the last one
    states how many there are and has all else. ``sent`` parts went before these. Raises ValueError if a single piece is too large."""
    if not sent and len(report.follows) <= PART_FOLLOWS and len(codec.pack(report)) <= PART_BYTES:
        return [report]
    pieces: list[NewTask | Item] = [*report.follows, *report.items]
    cut: list[Report] = []
    follows: list[NewTask] = []
    items: list[Item] = []
    size = 0
    bare = replace(report, track={}, follows=[], messages=[], items=[], info=None, retry_after=None, parts=0)
    for piece in pieces:
        length = len(codec.pack(piece))
        if length > MAX_PIECE:
            raise ValueError(_too_large(piece, length))
        full = isinstance(piece, NewTask) and len(follows) >= PART_FOLLOWS
        if full or (size and size + length > PART_BYTES):
            cut.append(replace(bare, follows=follows, items=items, part=sent + len(cut)))
            follows, items, size = [], [], 0
        if isinstance(piece, NewTask):
            follows.append(piece)
        else:
            items.append(piece)
        size += length
    last = replace(report, follows=follows, items=items, part=sent + len(cut), parts=sent + len(cut) + 1)
    rest = len(codec.pack(replace(last, follows=[], items=[])))
    if rest > MAX_PIECE:
        raise ValueError(f"self.save and the messages take {rest} bytes, more than the {MAX_PIECE} that can be sent")
    return [*cut, last]


def first_parts(report: Report, sent: int) -> list[Report]:
    """Parts of a report that is not complete yet, cut likewise; ``sent`` went before them."""
    return [replace(part, part=sent + number, parts=0) for number, part in enumerate(parts(report))]


def _too_large(piece: NewTask | Item, length: int) -> str:
    name = (
        f"the follow-up {piece.url[:200]}"
        if isinstance(piece, NewTask)
        else f"the result {piece.item[:200]!r}".removesuffix(" ''")
    )
    return f"{name} takes {length} bytes, more than the {MAX_PIECE} that can be sent"
