"""What a task failed with, as stable words: `task retry --error KIND` and others choose tasks by them. Pure.

A failed run has several of them, from the exact one to the general one, as ``503 5xx http`` or ``time-limit limit``. They are read from
the task's track (behaviour P21, P22), where the fetcher and the processor left them, also in tracks that pyspider wrote. The list is
in docs/tasks.md.
"""

import re
from typing import Any

#: no page came; `fetch` is all of them together
FETCH = frozenset(
    ("dns", "connect", "tls", "timeout", "too-large", "truncated", "redirects", "protocol", "proxy", "robots", "invalid-url",
     "refused-address", "browser", "internal")
)  # fmt: skip
#: a callback was ended; `limit` is all of them together
LIMITS = frozenset(["time-limit", "memory-limit", "process-limit"])
#: what comes from elsewhere: the callback's process died, workers died over the task, its result or report could not be stored, it could
#: not be sent
OTHERS = frozenset(["died", "worker-deaths", "result", "unstorable", "unsendable"])
GENERAL = frozenset(["fetch", "http", "limit", "script"])
KINDS = FETCH | LIMITS | OTHERS | GENERAL

#: the status of a fetch that got no answer (behaviour F10)
_NO_PAGE = 599
_STATUS = re.compile(r"[1-9]\d\d|[1-9]xx")
_CLASS = re.compile(r"[A-Za-z_]\w*")
#: beginnings of what the daemons write as ``track.process.exception``, and what it means
_SAID: tuple[tuple[re.Pattern[str], tuple[str, ...]], ...] = (
    (re.compile(r"process killed: [\d.e+]+ s limit"), ("time-limit", "limit")),
    (re.compile(r"process killed: \d+ MiB memory limit"), ("memory-limit", "limit")),
    (re.compile(r"process killed: limit of \d+ processes"), ("process-limit", "limit")),
    (re.compile(r"process killed|process died|no child could be started|processor: "), ("died",)),
    (re.compile(r"\d+ workers died over it"), ("worker-deaths",)),
    (re.compile(r"result could not be stored|on_result: |result worker: "), ("result",)),
    (re.compile(r"could not be stored"), ("unstorable",)),
    (re.compile(r"cannot be given out|the report (is too large|cannot be encoded)|what the callback produced"), ("unsendable",)),
)  # fmt: skip
#: exceptions that our own limits raise inside a callback
_RAISED: dict[str, tuple[str, ...]] = {
    "ProcessTimeout": ("time-limit", "limit"),
    "MemoryError": ("memory-limit", "limit"),
}
#: the last line of a traceback
_RAISED_AS = re.compile(r"^\s*([A-Za-z_][\w.]*?)(?::|$)")


def of_track(track: dict[str, Any]) -> frozenset[str]:
    """The kinds of a failed run, from its track; empty if it did not fail."""
    fetch, process = _part(track, "fetch"), _part(track, "process")
    if process.get("ok") is not False:
        return frozenset()
    if not process.get("error"):
        text = said(process)
        known = next((kinds for pattern, kinds in _SAID if pattern.match(text)), None)
        if known:
            return frozenset(known)
    raised = raised_as(process)
    if raised in _RAISED:
        return frozenset(_RAISED[raised])
    general = _of_fetch(fetch) if fetch.get("ok") is False else {"script"}
    return frozenset(general | ({raised} if raised else set()))


def said(process: Any) -> str:
    """What the run of this ``track.process`` failed with, in words: the text of its exception, or the class of one that has none, as
    ``assert x`` and ``raise Exception()`` (behaviour P22 stores an empty text of them). "" if nothing is known."""
    if not isinstance(process, dict):
        return ""
    return str(process.get("exception") or process.get("error") or "")


def _of_fetch(fetch: dict[str, Any]) -> set[str]:
    kind, status = fetch.get("error_kind"), fetch.get("status_code")
    kinds = {str(kind)} if kind else set()
    if kind or status == _NO_PAGE:
        kinds.add("fetch")
    if isinstance(status, int) and status != _NO_PAGE:
        kinds |= {str(status), f"{status // 100}xx", "http"}
    return kinds


def raised_as(process: dict[str, Any]) -> str:
    """The class of the exception that this ``track.process`` tells of, if need be from the log that ends with its traceback; "" if it is
    not known."""
    if error := process.get("error"):
        return str(error)
    for line in reversed(str(process.get("logs") or "").splitlines()[-20:]):
        found = _RAISED_AS.match(line)
        if found and (found[1].endswith(("Error", "Exception", "Exit", "Interrupt", "Warning", "Timeout"))):
            return found[1].rpartition(".")[2]
    return ""


def _part(track: dict[str, Any], name: str) -> dict[str, Any]:
    part = track.get(name)
    return part if isinstance(part, dict) else {}


def is_kind(word: str) -> bool:
    """Whether tasks can be chosen by it: a word of the list, a status (404, 5xx), or the name of an exception's class."""
    return word in KINDS or bool(_STATUS.fullmatch(word)) or (bool(_CLASS.fullmatch(word)) and word != word.lower())
