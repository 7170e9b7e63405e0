"""Options of the call, of @config and of crawl_config: who wins, in the debugger and at run time alike."""

import copy
from typing import Any

import pytest

from pyspider_lite import BaseHandler, crawl_config
from pyspider_lite.models.project import ProjectHead, ProjectState
from pyspider_lite.models.task import Task
from pyspider_lite.scheduler.project_state import Info, ProjectRun
from pyspider_lite.scheduler.sending import to_dispatch


@pytest.mark.behaviour("X-K14")
@pytest.mark.parametrize(
    ("own", "config", "joined"),
    [
        ({"timeout": 1}, {}, {"timeout": 1}),
        ({}, {"timeout": 9}, {"timeout": 9}),
        ({"timeout": 1}, {"timeout": 9, "proxy": "x"}, {"timeout": 1, "proxy": "x"}),
        # of dicts the keys are merged, and the task's win
        ({"headers": {"a": 1, "b": 1}}, {"headers": {"b": 2, "c": 2}}, {"headers": {"a": 1, "b": 1, "c": 2}}),
        ({"cookies": {"a": 1}}, {"cookies": {"A": 2}}, {"cookies": {"a": 1, "A": 2}}),
        ({"headers": {"X-A": 1}}, {"headers": {"x-a": 2, "x-b": 2}}, {"headers": {"X-A": 1, "x-b": 2}}),
        ({"headers": "text"}, {"headers": {"b": 2}}, {"headers": "text"}),
        ({"cookies": {"a": 1}}, {"cookies": "text"}, {"cookies": {"a": 1}}),
        # options of other parts, and unknown ones, are not the fetcher's
        ({}, {"priority": 3, "callback": "x", "taskid": "t", "itag": 1, "nonsense": 1}, {}),
        # None is a value, and the task's
        ({"proxy": None}, {"proxy": "x"}, {"proxy": None}),
    ],
)
def test_the_fetch_part(own: dict[str, Any], config: dict[str, Any], joined: dict[str, Any]) -> None:
    """H51, H57 to H59: the task's win."""
    before = copy.deepcopy((own, config))
    assert crawl_config.join_fetch(own, config) == joined
    assert (own, config) == before, "the stored task and the script's dict are not changed"


@pytest.mark.behaviour("X-F7")
@pytest.mark.parametrize(
    ("own", "config", "agent"),
    [
        ({}, {"user_agent": "config"}, {"User-Agent": "config"}),
        ({"headers": {"X": "1"}}, {"user_agent": "config"}, {"X": "1", "User-Agent": "config"}),
        ({"headers": {"user-agent": "own"}}, {"user_agent": "config"}, {"user-agent": "own"}),
        ({"headers": {"user-agent": "own"}}, {"headers": {"User-Agent": "config"}}, {"user-agent": "own"}),
        ({"user_agent": "own"}, {"headers": {"user-agent": "config"}}, {"User-Agent": "own"}),
        # on one side the header stands for itself
        ({}, {"user_agent": "option", "headers": {"user-agent": "header"}}, {"user-agent": "header"}),
    ],
)
def test_there_is_one_user_agent(own: dict[str, Any], config: dict[str, Any], agent: dict[str, str]) -> None:
    """H59 mended (X-F7); demand UA12: never two spellings of one header."""
    assert crawl_config.join_fetch(own, config)["headers"] == agent


@pytest.mark.parametrize(
    ("own", "config", "joined"),
    [
        ({"callback": "a"}, {}, {"callback": "a"}),
        ({"callback": "a"}, {"callback": "b"}, {"callback": "a"}),
        ({}, {"callback": "b"}, {"callback": "b"}),
        ({"callback": "a"}, {"process_time_limit": 5, "timeout": 1}, {"callback": "a", "process_time_limit": 5}),
    ],
)
def test_the_process_part(own: dict[str, Any], config: dict[str, Any], joined: dict[str, Any]) -> None:
    """H52, H57."""
    assert crawl_config.join_process(own, config) == joined


def test_the_schedule_part() -> None:
    """H50, H59."""
    defaults = crawl_config.schedule_defaults({"age": 2, "priority": 3, "itag": "v", "timeout": 9})
    assert crawl_config.merge({"age": 1}, defaults) == {"age": 1, "priority": 3, "itag": "v"}


def test_what_is_shared_stays_as_it_is() -> None:
    """X-P10: neither the call's dicts nor those of @config and crawl_config change, nor are they handed out."""
    own, defaults = {"headers": {"a": "1"}}, {"headers": {"b": "2"}, "cookies": {"c": "3"}}
    before = copy.deepcopy((own, defaults))
    merged = crawl_config.merge(own, defaults)
    merged["headers"]["x"] = merged["cookies"]["x"] = "changed"
    assert (own, defaults) == before


def test_the_debugger_shows_what_is_sent() -> None:
    """H59, demand UA12: the request in the debugger is the one that the scheduler gives out."""

    class Handler(BaseHandler):
        crawl_config = {
            "headers": {"accept-language": "de", "X-A": "config"},
            "user_agent": "me/1",
            "cookies": {"a": "1"},
            "proxy": "127.0.0.1:1",
            "process_time_limit": 3,
            "age": 60,
        }

        def page(self, response: Any) -> None: ...

    handler = Handler()
    call = {"headers": {"x-a": "call"}, "cookies": {"b": "2"}, "callback": "page", "timeout": 5}
    stored = handler.crawl("http://127.0.0.1/", **call)
    handler.__env__ = {"debugger": True}
    shown = handler.crawl("http://127.0.0.1/", **call)

    head = ProjectHead(name="p", group=None, status="RUNNING", rate=1, burst=1, updatetime=0.0, generation="")
    project = ProjectRun(head, ProjectState(project="p"), window_limit=10, fail_pause_num=10, now=0.0)
    project.info = Info(crawl_config=Handler.crawl_config)
    sent = to_dispatch(
        Task(**{part: stored[part] for part in ("taskid", "project", "url", "schedule", "fetch", "process")}),
        project,
        1,
    )
    assert (sent.schedule, sent.fetch, sent.process) == (shown["schedule"], shown["fetch"], shown["process"])
    assert sent.fetch["headers"] == {"accept-language": "de", "x-a": "call", "User-Agent": "me/1"}
    assert stored["fetch"]["headers"] == {"x-a": "call"}, "the stored task has its own part only"
