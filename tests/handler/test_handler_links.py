"""What ``self.crawl`` refuses and drops, and what makes two requests two tasks."""

import hashlib
import io
from typing import Any

import pytest

from pyspider_lite import BaseHandler, Response, config
from pyspider_lite.handler import Outcome


def run(callback: Any, **members: Any) -> tuple[Outcome, list[str]]:
    """One run of the callback: its outcome, and what the log of the task says."""
    said: list[str] = []

    class Log:
        def warning(self, text: str, *values: Any) -> None:
            said.append(text % values if values else text)

        def debug(self, text: str, *values: Any) -> None: ...

    handler = type("Handler", (BaseHandler,), {"cb": callback, "project_name": "p", "logger": Log(), **members})()
    outcome = handler._run_task({"taskid": "t", "process": {"callback": "cb"}}, Response(200, "http://site.test/"))
    return outcome, said


# --- bad links ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("H41")
@pytest.mark.parametrize(
    ("link", "reason"),
    [
        ("http://[bad/", "not a URL: Invalid IPv6 URL"),
        ("http://a..b/", "not a URL: "),
        ("http://" + "a" * 64 + ".com/", "not a URL: "),
        ("http://site.test/\ud800", "not a URL: "),
        ("data:,a\0b", "not a URL: there is a NUL in it"),
        ("http://site.test/" + "x" * 1024, "Maximum (1024) URL length error."),
    ],
)
def test_a_bad_link_is_dropped_and_recorded_and_the_loop_goes_on(link: str, reason: str) -> None:
    returned: list[Any] = []

    def callback(self: Any) -> None:
        for each in ("http://site.test/1", link, "http://site.test/2"):
            returned.append(self.crawl(each))

    outcome, said = run(callback)
    assert outcome.ok
    assert [task.url for task in outcome.follows] == ["http://site.test/1", "http://site.test/2"]
    assert returned[1] is None
    assert outcome.dropped == {"bad-url": 1}
    assert len(said) == 1
    assert said[0].startswith("crawl(")
    assert f"dropped: {reason}" in said[0]


@pytest.mark.behaviour("H40", "X-K4")
def test_a_list_with_bad_links_gives_the_tasks_of_the_others() -> None:
    def callback(self: Any) -> None:
        tasks = self.crawl(["http://site.test/1", None, "http://[", "http://site.test/2"], age=1)
        assert [task["url"] for task in tasks] == ["http://site.test/1", "http://site.test/2"]
        assert self.crawl(None) is self.crawl(5) is None
        assert self.crawl([]) == []

    outcome, _ = run(callback)
    assert outcome.ok, outcome.traceback
    assert [task.schedule for task in outcome.follows] == [{"age": 1}, {"age": 1}]


@pytest.mark.behaviour("H40")
@pytest.mark.parametrize("odd", [5, ["http://site.test/x"], {"href": "/x"}])
def test_what_is_no_text_in_a_list_is_one_recorded_drop(odd: Any) -> None:
    outcome, said = run(lambda self: self.crawl(["http://site.test/1", odd, b"http://site.test/\xe4\xb8\xad", None]))
    assert outcome.ok, outcome.traceback
    assert [task.url for task in outcome.follows] == ["http://site.test/1", "http://site.test/%E4%B8%AD"]
    assert outcome.dropped == {"bad-url": 1}
    assert said == [f"crawl({odd!r}): dropped: a URL must be a str, not {type(odd).__name__}"]


@pytest.mark.behaviour("H45")
@pytest.mark.parametrize("link", ["http://site.test/", ["http://site.test/"], "curl http://site.test/"])
def test_a_wrong_keyword_is_refused_at_the_line_of_the_call(link: Any) -> None:
    with pytest.raises(TypeError, match=r"unexpected keyword argument: ages .did you mean age"):
        BaseHandler().crawl(link, ages=1)


# --- identity -----------------------------------------------------------------------------------------------------------


def taskid(**options: Any) -> str:
    return str(BaseHandler().crawl("http://site.test/x", **options)["taskid"])


def md5(data: bytes) -> str:
    return hashlib.md5(data).hexdigest()


@pytest.mark.behaviour("H43", "X-K5")
def test_a_get_is_known_by_its_url_and_all_else_by_method_url_and_body() -> None:
    assert (
        taskid()
        == taskid(method="GET")
        == taskid(method=None)
        == taskid(headers={"a": "b"})
        == md5(b"http://site.test/x")
    )
    assert taskid(data="a=1") == taskid(data={"a": 1}) == taskid(data=b"a=1") == md5(b"POST http://site.test/x\na=1")
    assert taskid(method="put", data="{}") == md5(b"PUT http://site.test/x\n{}")
    assert taskid(method="DELETE") == md5(b"DELETE http://site.test/x\n")
    assert taskid(method="GET", data="q") == md5(b"GET http://site.test/x\nq")
    assert taskid(data=b"\xff\x00") == md5(b"POST http://site.test/x\n\xff\x00")
    assert taskid(data="中") == md5("POST http://site.test/x\n中".encode())


@pytest.mark.behaviour("H43")
def test_get_taskid_and_taskid_win() -> None:
    class Handler(BaseHandler):
        def get_taskid(self, task: Any) -> str:
            assert task["process"] == {"callback": "cb"} and task["schedule"] == {"age": 3}
            return md5((task["url"] + str(task["fetch"].get("data", ""))).encode())

        def cb(self) -> None: ...

    handler = Handler()
    assert handler.crawl("http://a.test/", data="x", callback="cb", age=3)["taskid"] == md5(b"http://a.test/x")
    assert handler.crawl("http://a.test/", data="x", taskid="mine")["taskid"] == "mine"
    assert BaseHandler().get_taskid({"url": "http://a.test/"}) == md5(b"http://a.test/")


@pytest.mark.behaviour("H43", "H59")
def test_the_debugger_shows_the_id_of_the_task_that_will_run() -> None:
    class Handler(BaseHandler):
        crawl_config = {"method": "POST", "data": "x"}

    handler = Handler()
    running = handler.crawl("http://a.test/")["taskid"]
    handler.__env__ = {"debugger": True}
    assert handler.crawl("http://a.test/")["taskid"] == running


def test_fifty_posts_to_one_address_are_fifty_tasks() -> None:
    def callback(self: Any) -> None:
        for page in [*range(50), *range(50)]:
            self.crawl("http://site.test/list", data={"page": page})

    outcome, said = run(callback)
    assert len({task.taskid for task in outcome.follows}) == len(outcome.follows) == 50
    assert (outcome.dropped, said) == ({"duplicate": 50}, [])


@pytest.mark.behaviour("H49")
def test_another_request_under_a_taken_id_is_said_once() -> None:
    def callback(self: Any) -> None:
        for page in range(9):
            assert self.crawl("http://site.test/list", data={"page": page})["fetch"]["data"] == f"page={page}"

    outcome, said = run(callback, get_taskid=lambda self, task: "same")
    assert [task.fetch["data"] for task in outcome.follows] == ["page=0"]
    assert outcome.dropped == {"same-taskid": 8}
    assert said == ["crawl('http://site.test/list'): dropped: its taskid is that of 'http://site.test/list'"]


@pytest.mark.parametrize("odd", ["x" * 5000, "../../etc", "a b\n", "中文", "%00", "a/b?c#d", "'; drop table", "\0"])
def test_ids_of_any_kind_are_sent_as_they_are(odd: str) -> None:
    outcome, _ = run(lambda self: self.crawl("http://site.test/", taskid=odd) and None)
    assert [task.taskid for task in outcome.follows] == [odd]


@pytest.mark.behaviour("H47")
def test_the_same_upload_is_the_same_task() -> None:
    def task(content: bytes) -> Any:
        return BaseHandler().crawl("http://a.test/", files={"f": ("n.txt", content)}, data={"x": "1"})

    assert task(b"\xff\x00") == task(b"\xff\x00")
    assert task(b"\xff\x00")["taskid"] != task(b"\xff\x01")["taskid"]


@pytest.mark.behaviour("H46", "H47", "H53")
def test_files_and_iterators_of_a_call_serve_all_its_urls() -> None:
    urls = ["http://a.test/1", "http://a.test/2"]
    uploads = BaseHandler().crawl(urls, files={"f": io.BytesIO(b"content")})
    assert [b"content" in task["fetch"]["data"] for task in uploads] == [True, True]
    forms = BaseHandler().crawl(urls, data=((str(n), n) for n in range(2)), params=((k, 1) for k in "ab"))
    assert [task["fetch"]["data"] for task in forms] == ["0=0&1=1"] * 2
    assert [task["url"] for task in forms] == ["http://a.test/1?a=1&b=1", "http://a.test/2?a=1&b=1"]


@pytest.mark.behaviour("H30", "H36")
def test_config_by_keywords_or_a_dict_is_the_default_of_its_callback() -> None:
    class Handler(BaseHandler):
        @config(age=60, headers={"A": "1"})
        def words(self) -> None: ...

        @config({"priority": 2}, age=5)
        def both(self) -> None: ...

    handler = Handler()
    assert handler.crawl("http://a.test/", callback="words")["schedule"] == {"age": 60}
    assert handler.crawl("http://a.test/", callback=handler.both, age=6)["schedule"] == {"age": 6, "priority": 2}
    assert handler.crawl("http://a.test/")["schedule"] == {}
    assert Handler.words(handler) is None


@pytest.mark.behaviour("X-K10", "H47")
@pytest.mark.parametrize("data", ["a=1", b"a=1"])
def test_files_beside_a_text_are_refused_at_the_call(data: Any) -> None:
    with pytest.raises(ValueError, match="Data must not be a string"):
        BaseHandler().crawl("http://a.test/", files={"f": "content"}, data=data)


# --- the links of a page ------------------------------------------------------------------------------------------------


def test_the_links_of_a_page_are_entered_as_they_are_chosen() -> None:
    def cb(self: BaseHandler, response: Response) -> Any:
        response.content = '<a href="/item/1">1</a><p><a href="/item/2">2</a><a href="/about">3</a></p><a href="//other.test/item/3">4</a>'
        return [
            [task["url"] for task in self.crawl_links(callback=self.cb, **choice)]  # type: ignore[attr-defined]
            for choice in ({}, {"css": "p", "deny": "about"}, {"allow": r"/item/3", "same_site": False, "priority": 3})
        ]

    outcome, said = run(cb)
    assert not said and [follow.url for follow in outcome.follows] == [
        *(f"http://site.test/{path}" for path in ("item/1", "item/2", "about")),
        "http://other.test/item/3",
    ]
    assert outcome.follows[-1].schedule == {"priority": 3}


def test_outside_a_callback_there_are_no_links() -> None:
    with pytest.raises(RuntimeError, match="no page outside a callback"):
        BaseHandler().crawl_links()
