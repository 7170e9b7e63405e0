"""What ``self.crawl(url, **options)`` makes of its arguments: a task dict (behaviour H40 to H59). Pure; called by `BaseHandler`."""

import base64
import difflib
import math
from collections.abc import Mapping
from typing import Any

from pyspider_lite import codec
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler import url as urls
from pyspider_lite.models import NewTask

#: H50
SCHEDULE = ("priority", "retries", "exetime", "age", "itag", "force_update", "auto_recrawl", "cancel")
#: H51; ``last_modifed`` is the spelling of old scripts
FETCH = (
    *("method", "headers", "user_agent", "data", "connect_timeout", "timeout", "allow_redirects", "cookies", "proxy"),
    *("etag", "last_modifed", "last_modified", "save", "max_redirects", "robots_txt", "use_gzip", "validate_cert"),
    *("fetch_type", "js_run_at", "js_script", "js_viewport_width", "js_viewport_height", "load_images"),
)
#: H52
PROCESS = ("callback", "process_time_limit")
#: H53: used up by crawl itself
CONSUMED = ("params", "files", "taskid")

_NUMBERS = frozenset({"priority", "retries", "exetime", "age"})
_GROUPS = {
    **dict.fromkeys(SCHEDULE, "schedule"),
    **dict.fromkeys(FETCH, "fetch"),
    **dict.fromkeys(PROCESS, "process"),
}


def merge(options: dict[str, Any], defaults: Mapping[str, Any]) -> None:
    """Add ``defaults`` to ``options``: a dict in both is merged, and what the call gave wins (H57; H58 the other way: X-P10).

    Neither the dicts inside ``options`` nor those inside ``defaults`` are changed: scripts share them between calls.
    """
    for key, value in defaults.items():
        if key not in options:
            options[key] = dict(value) if isinstance(value, dict) else value
        elif isinstance(value, dict) and isinstance(options[key], dict):
            options[key] = {**value, **options[key]}


def make_task(project: str, url: str, options: dict[str, Any]) -> dict[str, Any]:
    """The task without its id; ``options`` are the merged ones. TypeError names an option that does not exist (H45)."""
    url = urls.build_url(url, options.pop("params", None))
    _prepare_body(options)
    if options.get("user_agent"):
        _set_header(options, "User-Agent", options["user_agent"])
    groups: dict[str, dict[str, Any]] = {"schedule": {}, "fetch": {}, "process": {}}
    for key, value in options.items():
        group = _GROUPS.get(key)
        if group is None:
            raise TypeError(f"crawl() got unexpected keyword argument: {key}{_did_you_mean(key)}")
        groups[group][key] = value
    headers = options.get("headers")
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"crawl(): headers must be a dict, not {type(headers).__name__}")
    return {**groups, "project": project, "url": url}


def join_schedule(schedule: dict[str, Any], crawl_config: Mapping[str, Any]) -> None:
    """Add the schedule options of crawl_config (H59), then check that numbers are numbers."""
    for key in SCHEDULE:
        if key in crawl_config and key not in schedule:
            schedule[key] = crawl_config[key]
    for key in _NUMBERS & schedule.keys():
        value = schedule[key]
        if value is None:  # "the default", for all who say so
            del schedule[key]
        elif not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError(f"crawl(): {key} must be a number, not {value!r}")


def join_fetch(task: dict[str, Any], crawl_config: Mapping[str, Any]) -> None:
    """Add fetch and process options of crawl_config; what the task says wins (H59, as the debugger shows it)."""
    merge(task["fetch"], {key: crawl_config[key] for key in FETCH if key in crawl_config})
    merge(task["process"], {key: crawl_config[key] for key in PROCESS if key in crawl_config})
    agent = task["fetch"].get("user_agent")
    if agent and not any(name.lower() == "user-agent" for name in task["fetch"].get("headers") or ()):
        _set_header(task["fetch"], "User-Agent", agent)


def submission(task: dict[str, Any]) -> NewTask:
    """The task as it is sent: plain JSON values, a copy of what it is now. UnstorableValue names what cannot be sent."""
    fetch = task["fetch"]
    if fetch:
        if isinstance(fetch.get("data"), bytes):
            fetch = {**fetch, "data": _body_text(fetch["data"])}
        try:
            fetch = codec.from_json(codec.to_json(fetch))
        except UnstorableValue as error:
            raise UnstorableValue(f"crawl({task['url']}): {str(error).removeprefix('$.')}") from None
    return NewTask(
        taskid=task["taskid"],
        project=task["project"],
        url=task["url"],
        schedule=dict(task["schedule"]),
        fetch=fetch,
        process=dict(task["process"]),
    )


def _prepare_body(options: dict[str, Any]) -> None:
    """Encode ``data`` and ``files``; with a body the method is POST unless given (H46, H47)."""
    files, data = options.pop("files", None), options.get("data")
    if files:
        content_type, options["data"] = urls.encode_multipart(files, data)
        _set_header(options, "Content-Type", content_type)
    elif data:
        encoded = urls.encode_form(data)
        if not isinstance(encoded, str | bytes):
            raise TypeError(f"crawl(): data must be a dict, a list of pairs, str or bytes, not {type(data).__name__}")
        options["data"] = encoded
    if options.get("data"):
        options.setdefault("method", "POST")
    else:  # nothing to send is no body (X-F9)
        options.pop("data", None)


def _set_header(options: dict[str, Any], name: str, value: str) -> None:
    """Set the header in a copy of the headers, in place of any spelling of its name."""
    given = options.get("headers") or {}
    if not isinstance(given, Mapping):
        raise TypeError(f"crawl(): headers must be a dict, not {type(given).__name__}")
    options["headers"] = {key: given[key] for key in given if key.lower() != name.lower()} | {name: value}


def _body_text(body: bytes) -> str:
    """A body as it travels in JSON: text if it is UTF-8, else in the form that the fetcher turns back (F2)."""
    try:
        return body.decode()
    except UnicodeDecodeError:
        return f"[BASE64-DATA]{base64.b64encode(body).decode()}[/BASE64-DATA]"


def _did_you_mean(key: str) -> str:
    near = difflib.get_close_matches(key, [*_GROUPS, *CONSUMED], n=1)
    return f" (did you mean {near[0]}?)" if near else ""
