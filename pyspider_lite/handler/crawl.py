"""What ``self.crawl(url, **options)`` makes of its arguments: a task dict (behaviour H40 to H59). Pure; called by `BaseHandler`."""

import difflib
import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

from pyspider_lite import codec, crawl_config
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler import url as urls
from pyspider_lite.models.task import NewTask

#: H53: used up by crawl itself
CONSUMED = ("params", "files", "taskid")

_NUMBERS = frozenset({"priority", "retries", "exetime", "age"})
_GROUPS = {
    **dict.fromkeys(crawl_config.SCHEDULE, "schedule"),
    **dict.fromkeys(crawl_config.FETCH, "fetch"),
    **dict.fromkeys(crawl_config.PROCESS, "process"),
}


def prepare(options: dict[str, Any]) -> None:
    """Make of merged options, once for all URLs of a call, what each of their tasks has: the body, its headers, the query.

    With a body the method is POST unless given (H46, H47). Files and iterators in the options are read here, once.
    """
    if options.get("params"):
        options["params"] = urls.encode_query(options["params"])
    _prepare_body(options)
    if options.get("user_agent"):
        _set_header(options, "User-Agent", options["user_agent"])
    headers = options.get("headers")
    if headers is not None and not isinstance(headers, Mapping):
        raise TypeError(f"crawl(): headers must be a dict, not {type(headers).__name__}")


class Call:
    """One call of ``self.crawl``: its options, joined and prepared, and what the tasks of all its URLs have in common."""

    def __init__(self, options: dict[str, Any], defaults: Mapping[str, Any]) -> None:
        """``options`` are merged with those of ``@config``; files and iterators in them are read here, once. ``defaults``:
        the schedule part of the project's crawl_config."""
        prepare(options)
        self.options = options
        self.defaults = defaults
        self._sent: NewTask | None = None

    def task(self, project: str, url: Any) -> dict[str, Any]:
        """The task without its id. TypeError names an option that does not exist (H45) or its wrong value, BadUrl a bad URL."""
        schedule, fetch, process = self._groups
        address = urls.build_url(url, self.options.get("params"))
        return {
            "schedule": schedule.copy(),
            "fetch": fetch.copy(),
            "process": process.copy(),
            "project": project,
            "url": address,
        }

    def submission(self, task: dict[str, Any]) -> NewTask:
        """A task of this call that nobody changed, as `submission` gives it: what all tasks share is looked at once."""
        if self._sent is None or "taskid" in self.options:
            self._sent = submission(task)
            return self._sent
        like = self._sent
        return NewTask(task["taskid"], task["project"], task["url"], like.schedule, like.fetch, like.process)

    @cached_property
    def _groups(self) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
        groups: dict[str, dict[str, Any]] = {"schedule": {}, "fetch": {}, "process": {}}
        for key, value in self.options.items():
            if key in CONSUMED:
                continue
            group = _GROUPS.get(key)
            if group is None:
                raise TypeError(f"crawl() got unexpected keyword argument: {key}{_did_you_mean(key)}")
            groups[group][key] = value
        schedule = crawl_config.merge(groups["schedule"], self.defaults)
        check_schedule(schedule)
        return schedule, groups["fetch"], groups["process"]


#: tasks that show control work (behaviour W5, S50)
_RESERVED = frozenset({"on_start", "on_finished", "_on_cronjob", "_on_get_info"})


def check_schedule(schedule: dict[str, Any]) -> None:
    """Check that numbers are numbers; crawl_config is joined already."""
    for key in _NUMBERS & schedule.keys():
        value = schedule[key]
        if value is None:  # "the default", for all who say so
            del schedule[key]
        elif not isinstance(value, int | float) or not math.isfinite(value):
            raise TypeError(f"crawl(): {key} must be a number, not {value!r}")
    if schedule.get("retry_status") is None:
        schedule.pop("retry_status", None)
    else:
        schedule["retry_status"] = _retry_status(schedule["retry_status"])


def _retry_status(value: Any) -> dict[str, int]:
    """Retries by status, with keys of text as JSON has them."""
    if not isinstance(value, Mapping):
        raise TypeError(f"crawl(): retry_status must be a dict of status to number of retries, not {value!r}")
    checked: dict[str, int] = {}
    for status, retries in value.items():
        if not str(status).isdecimal() or isinstance(retries, bool) or not isinstance(retries, int) or retries < 0:
            raise TypeError(f"crawl(): retry_status must be like {{404: 0, 503: 5}}, not {status!r}: {retries!r}")
        checked[str(int(status))] = retries
    return checked


def submission(task: dict[str, Any]) -> NewTask:
    """The task as it is sent: plain JSON values, a copy of what it is now. UnstorableValue names what cannot be sent."""
    fetch = task["fetch"]
    if isinstance(fetch.get("data"), bytes):
        fetch = {**fetch, "data": codec.bytes_to_text(fetch["data"])}
    try:
        # what cannot be sent is refused here, at the line of the call, and takes no other link with it
        codec.to_json({"taskid": task["taskid"], **task["schedule"], **task["process"]})
        fetch = codec.from_json(codec.to_json(fetch)) if fetch else {}
        if fetch or task["schedule"]:
            codec.pack((task["schedule"], fetch))
    except UnstorableValue as error:
        raise UnstorableValue(f"crawl({task['url']}): {str(error).removeprefix('$.')}") from None
    except (ValueError, OverflowError, TypeError) as error:  # JSON takes integers of any size, msgpack does not
        raise UnstorableValue(f"crawl({task['url']}): its options cannot be sent: {error}") from None
    if task["taskid"] in _RESERVED:
        raise ValueError(
            f"crawl({task['url']}): the taskid {task['taskid']!r} is one of the suite's own; choose another"
        )
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
    options["headers"] = {**crawl_config.without_header(given, [name]), name: value}


def _did_you_mean(key: str) -> str:
    near = difflib.get_close_matches(key, [*_GROUPS, *CONSUMED], n=1)
    return f" (did you mean {near[0]}?)" if near else ""
