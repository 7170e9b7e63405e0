"""How the options of a call, of ``@config`` and of a project's ``crawl_config`` become one: the only place that knows it.

Pure. The handler merges call and ``@config`` and adds the schedule part when ``crawl()`` is called; the fetch and process parts
are joined by the scheduler when it gives a task out, and by the handler in the debugger, with the same function, so that both
show and send the same request (behaviour H50 to H59, demand UA12).
"""

from collections.abc import Iterable, Mapping
from typing import Any

#: options of task.schedule (H50)
SCHEDULE = ("priority", "retries", "exetime", "age", "itag", "force_update", "auto_recrawl", "cancel", "retry_status")
#: options of task.fetch (H51); ``last_modifed`` is the spelling of old scripts
FETCH = (
    *("method", "headers", "user_agent", "data", "connect_timeout", "timeout", "allow_redirects", "cookies", "proxy"),
    *("etag", "last_modifed", "last_modified", "save", "max_redirects", "robots_txt", "use_gzip", "validate_cert"),
    *("fetch_type", "js_run_at", "js_script", "js_viewport_width", "js_viewport_height", "load_images"),
)
#: options of task.process (H52)
PROCESS = ("callback", "process_time_limit")


def merge(own: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    """``own`` with what only ``defaults`` has. Of a dict in both the keys are merged, ``own`` wins throughout (H57; H58 the other
    way: X-P10); names of headers are the same in any case.

    New dicts: neither argument nor a dict inside it is changed, because scripts share them between calls.
    """
    merged = dict(own)
    for key, value in defaults.items():
        mine = own.get(key)
        if key not in own:
            merged[key] = dict(value) if isinstance(value, dict) else value
        elif isinstance(value, dict) and isinstance(mine, dict):
            if key == "headers":
                value = without_header(value, mine)
            merged[key] = {**value, **mine}
    return merged


def without_header(headers: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    """A copy of ``headers`` without these, in any spelling."""
    lower = {str(name).lower() for name in names}
    return {name: value for name, value in headers.items() if str(name).lower() not in lower}


def schedule_defaults(crawl_config: Mapping[str, Any]) -> dict[str, Any]:
    """The options of crawl_config for task.schedule; they are merged into it when ``crawl()`` is called (H59)."""
    return _chosen(crawl_config, SCHEDULE)


def join_fetch(fetch: dict[str, Any], crawl_config: Mapping[str, Any]) -> dict[str, Any]:
    """task.fetch with the options of crawl_config, when the task is given out (H59).

    ``user_agent`` becomes the header here, on the side that it stands on: one of crawl_config works (X-F7), and one of the task
    wins over a header of crawl_config.
    """
    defaults = _chosen(crawl_config, FETCH)
    return merge(_with_agent(fetch), _with_agent(defaults)) if defaults else fetch


def join_process(process: dict[str, Any], crawl_config: Mapping[str, Any]) -> dict[str, Any]:
    """task.process with the options of crawl_config, when the task is given out (H59)."""
    defaults = _chosen(crawl_config, PROCESS)
    return merge(process, defaults) if defaults else process


def _chosen(crawl_config: Mapping[str, Any], keys: Iterable[str]) -> dict[str, Any]:
    return {key: crawl_config[key] for key in keys if key in crawl_config} if crawl_config else {}


def _with_agent(fetch: dict[str, Any]) -> dict[str, Any]:
    agent, headers = fetch.get("user_agent"), fetch.get("headers") or {}
    if not agent or not isinstance(headers, dict) or any(str(name).lower() == "user-agent" for name in headers):
        return fetch
    return {**fetch, "headers": {**headers, "User-Agent": agent}}
