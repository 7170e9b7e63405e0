"""What users do in their scripts, beyond what pyspider's golden data covers."""

import re
import sys
from datetime import date
from decimal import Decimal
from typing import Any

import pytest

from pyspider_lite import BaseHandler, Response, config, every
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler import Outcome
from pyspider_lite.handler.curl import curl_to_arguments
from pyspider_lite.models.page import FetchResponse


def run(handler: BaseHandler, callback: str = "cb", track: Any = None, **response: Any) -> Outcome:
    handler.project_name = "p"
    response = {"status_code": 200, "url": "http://site.test/", **response}
    task = {"taskid": "t", "url": "http://site.test/", "process": {"callback": callback}, "track": track}
    return handler._run_task(task, Response(**response))


def ids(outcome: Outcome) -> dict[str, str]:
    return {item.item: item.result for item in outcome.items}


# --- results ------------------------------------------------------------------------------------------------------------


def test_yielded_items_are_told_apart_by_place_or_key() -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> Any:
            yield {"n": 0}
            yield None
            yield self.item("sku", {"n": 2})
            self.item("silent", {"n": 3})
            yield self.item("sku", {"n": 4})

    assert ids(run(Handler())) == {"0": '{"n":0}', "sku": '{"n":4}', "silent": '{"n":3}'}


def test_on_result_stores_through_super_as_often_as_it_likes() -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> Any:
            return [1, 2, 3]

        def on_result(self, result: Any) -> None:
            for each in result:
                super().on_result(each)

    assert ids(run(Handler())) == {"": "1", "1": "2", "2": "3"}


@pytest.mark.behaviour("P23", "X-R1")
def test_values_that_are_not_json_name_their_place() -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> Any:
            yield {"date": date(2020, 1, 2), "price": Decimal("1.5")}
            yield {"date": object()}

        def one(self, response: Response) -> Any:
            return {"items": [{}, {"date": object()}]}

        def saves(self, response: Response) -> None:
            self.save["x"] = object()

        def crawls(self, response: Response) -> None:
            self.crawl("http://site.test/1", save={"x": object()})

    outcome = run(Handler())
    assert ids(outcome) == {"0": '{"date":"2020-01-02","price":"1.5"}'}
    assert str(outcome.exception).startswith("items[1].date: a value of type object")
    assert str(run(Handler(), "one").exception).startswith("result.items[1].date:")
    assert "save.x" in str(run(Handler(), "crawls").exception)
    outcome = run(Handler(), "saves", track={"save": {"kept": 1}})
    assert str(outcome.exception).startswith("self.save.x:")
    assert outcome.save == {"kept": 1}


def test_async_callbacks_and_generators() -> None:
    class Handler(BaseHandler):
        async def cb(self, response: Response) -> Any:
            return {"a": 1}

        async def many(self, response: Response) -> Any:
            for number in (1, 2):
                self.crawl(f"http://site.test/{number}")
                yield number

    assert ids(run(Handler())) == {"": '{"a":1}'}
    outcome = run(Handler(), "many")
    assert ids(outcome) == {"0": "1", "1": "2"}
    assert len(outcome.follows) == 2


# --- failures -----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("X-P4", "H27")
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, RecursionError, ValueError])
def test_nothing_escapes_and_links_are_kept(kind: type[BaseException]) -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> Any:
            self.crawl("http://site.test/1")
            if kind is RecursionError:
                return self.cb(response)
            if kind is SystemExit:
                sys.exit("bye")
            raise kind("bye")

    outcome = run(Handler())
    assert isinstance(outcome.exception, kind)
    assert [task.url for task in outcome.follows] == ["http://site.test/1"]
    assert outcome.traceback
    assert outcome.traceback.splitlines()[1].strip().startswith(f'File "{__file__}"')


def test_a_failed_page_fails_without_calling_back() -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> Any:
            raise AssertionError("called")

    assert str(run(Handler(), status_code=599, error="HTTP 599: timeout").exception) == "HTTP 599: timeout"


# --- crawl --------------------------------------------------------------------------------------------------------------


def test_what_is_sent_is_what_was_given_at_the_call() -> None:
    class Handler(BaseHandler):
        def cb(self, response: Response) -> None:
            save: dict[str, Any] = {}
            for number in (1, 2):
                save["n"] = number
                self.crawl(f"http://site.test/{number}", save=save)

    assert [task.fetch["save"] for task in run(Handler()).follows] == [{"n": 1}, {"n": 2}]


@pytest.mark.behaviour("X-P10")
def test_the_call_wins_and_shared_dicts_stay_as_they_are() -> None:
    shared = {"A": "config", "B": "config"}

    class Handler(BaseHandler):
        @config(headers=shared)
        def cb(self, response: Response) -> None: ...

    handler = Handler()
    mine = {"a": "call"}
    task = handler.crawl("http://a.test/", callback=handler.cb, headers={"A": "call"}, user_agent="UA", save=mine)
    assert task["fetch"]["headers"] == {"A": "call", "B": "config", "User-Agent": "UA"}
    assert handler.crawl("http://a.test/", callback="cb")["fetch"] == {"headers": shared}
    assert shared == {"A": "config", "B": "config"}
    assert mine == {"a": "call"}


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"age": "10"}, "age must be a number"),
        ({"priority": [1]}, "priority must be a number"),
        ({"exetime": float("nan")}, "exetime must be a number"),
        ({"headers": "A: b"}, "headers must be a dict"),
        ({"data": True}, "data must be a dict"),
        ({"cookie": {}}, "unexpected keyword argument: cookie (did you mean cookies?)"),
        ({"params": 5}, "params must be"),
    ],
)
def test_wrong_options_are_refused_at_the_call(options: dict[str, Any], text: str) -> None:
    with pytest.raises(TypeError) as raised:
        BaseHandler().crawl("http://a.test/", **options)
    assert text in str(raised.value)


def test_none_for_a_number_is_the_default() -> None:
    assert BaseHandler().crawl("http://a.test/", age=None, priority=1)["schedule"] == {"priority": 1}


def test_uploads_in_the_documented_shape() -> None:
    task = BaseHandler().crawl("http://a.test/", files={"f": {"name.txt": b"\xff"}}, data={"x": "1"})
    assert task["fetch"]["method"] == "POST"
    assert b'name="f"; filename="name.txt"' in task["fetch"]["data"]
    assert task["fetch"]["headers"]["Content-Type"].startswith("multipart/form-data; boundary=")


def test_crawl_config_joins_in_the_debugger() -> None:
    class Handler(BaseHandler):
        crawl_config = {"headers": {"X": "cc"}, "user_agent": "UA", "age": 9}

    handler = Handler()
    assert handler.crawl("http://a.test/")["fetch"] == {}
    handler.__env__ = {"debugger": True}
    task = handler.crawl("http://a.test/", headers={"Y": "call"})
    assert task["fetch"]["headers"] == {"X": "cc", "Y": "call", "User-Agent": "UA"}
    assert Handler.crawl_config["headers"] == {"X": "cc"}
    assert task["schedule"] == {"age": 9}


@pytest.mark.behaviour("H72", "X-C2")
def test_a_command_as_browsers_copy_it() -> None:
    command = (
        "curl 'http://h/x?a=1' \\\n  -H 'Accept: */*' \\\n  -b 'k=v' \\\n"
        "  --data-raw $'it\\'s\\n\\u4e2d' \\\r\n  --compressed -XPUT"
    )
    assert curl_to_arguments(command) == {
        "urls": ["http://h/x?a=1"],
        "headers": {"Accept": "*/*", "Cookie": "k=v", "Content-Type": "application/x-www-form-urlencoded"},
        "data": "it's\n中",
        "method": "PUT",
        "use_gzip": True,
    }
    with pytest.raises(ValueError, match="No closing quotation"):
        curl_to_arguments("curl 'http://h/")


# --- the clock ----------------------------------------------------------------------------------------------------------


@pytest.mark.behaviour("H31", "H32", "X-S18")
def test_cron_jobs_are_inherited_and_can_be_overridden() -> None:
    class Base(BaseHandler):
        @every(minutes=1)
        def a(self) -> None:
            self.crawl("http://site.test/a")

        @every(seconds=90)
        def b(self) -> None: ...

    class Handler(Base):
        def b(self) -> None: ...

        @every(minutes=2)
        def c(self) -> Any:
            self.crawl("http://site.test/c")
            yield "thrown away"

    assert Handler.cron_jobs() == [("a", 60), ("c", 120)]
    assert (Base.min_tick(), Handler.min_tick(), BaseHandler.min_tick()) == (30, 60, 0)
    outcome = run(Handler(), "_on_cronjob", save={"tick": 240})
    assert [task.url for task in outcome.follows] == ["http://site.test/a", "http://site.test/c"]
    assert outcome.no_status
    assert outcome.items == []
    info = run(Handler(), "_on_get_info").info
    assert info is not None
    assert [(job["name"], job["every"]) for job in info.pop("jobs")] == [("a", 60), ("c", 120)]
    assert info == {"min_tick": 60, "retry_delay": {}, "crawl_config": {}, "cron": [60, 120]}


@pytest.mark.parametrize("interval", [0, 0.5, -1, float("inf")])
def test_an_interval_is_whole_seconds(interval: float) -> None:
    with pytest.raises(ValueError, match="whole number of seconds"):
        every(seconds=interval)


@pytest.mark.parametrize("options", [{"minutes": "5"}, {"seconds": "5"}, {"minutes": 1, "seconds": [5]}])
def test_an_interval_is_a_number(options: dict[str, Any]) -> None:
    with pytest.raises(TypeError, match=r"@every: (minutes|seconds) must be a number, not ('5'|\[5\])"):
        every(**options)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"priority": 2**70}, "bad.*cannot be sent: .*int"),
        ({"save": {"n": 2**70}}, "bad.*cannot be sent: .*int"),
        ({"itag": "\ud800"}, "itag"),
        ({"taskid": "\ud800"}, "taskid"),
        ({"taskid": "on_start"}, "one of the suite's own"),
        ({"taskid": "on_finished"}, "one of the suite's own"),
    ],
)
def test_what_cannot_be_sent_is_refused_at_its_call_and_takes_no_other_link_along(options, reason):
    class Handler(BaseHandler):
        project_name = "p"

        def cb(self, response):
            self.crawl("http://a.test/1", callback="cb")
            with pytest.raises((UnstorableValue, ValueError), match=reason):
                self.crawl("http://a.test/bad", callback="cb", **options)
            with pytest.raises(UnstorableValue):
                self.item("\ud800", 1)
            self.crawl("http://a.test/2", callback="cb")

    outcome = Handler()._run_task(
        {"process": {"callback": "cb"}}, Response.from_fetch(FetchResponse(status_code=200, url="http://a.test/"))
    )
    assert outcome.ok, outcome.traceback
    assert [task.url for task in outcome.follows] == ["http://a.test/1", "http://a.test/2"]


def test_a_crontab_is_a_job_like_any_other() -> None:
    class Handler(BaseHandler):
        @every(cron=" 0  8 * * * ", tz="Asia/Shanghai", misfire_grace=60)
        def morning(self) -> None:
            self.crawl("http://site.test/morning")

        @every(seconds=90, max_instances=2)
        def often(self) -> None:
            self.crawl("http://site.test/often")

    assert (Handler.cron_jobs(), Handler.min_tick()) == ([("often", 90)], 30)
    info = run(Handler(), "_on_get_info").info
    assert info is not None
    assert info["jobs"] == [
        {
            "name": "morning",
            "every": 0,
            "cron": "0 8 * * *",
            "tz": "Asia/Shanghai",
            "max_instances": 1,
            "misfire_grace": 60,
        },
        {"name": "often", "every": 90, "cron": "", "tz": "UTC", "max_instances": 2, "misfire_grace": None},
    ]
    for save, pages in (
        ({"tick": 86_400}, ["morning", "often"]),
        ({"tick": 90}, ["often"]),
        ({"tick": 61}, []),
        ({"tick": 61, "job": "morning"}, ["morning"]),
        ({"tick": 61, "job": "gone"}, []),
    ):
        follows = run(Handler(), "_on_cronjob", save=save).follows
        assert [task.url for task in follows] == [f"http://site.test/{page}" for page in pages]


@pytest.mark.parametrize(("latest", "runs"), [(None, True), (4e9, True), (61 + 2, False)])
def test_a_tick_that_waited_longer_than_its_grace_is_left_out(latest: float | None, runs: bool) -> None:
    class Handler(BaseHandler):
        @every(seconds=61, misfire_grace=0)
        def job(self) -> None:
            self.crawl("http://site.test/")

    save = {"tick": 61, "job": "job"} | ({} if latest is None else {"latest": latest})
    outcome = run(Handler(), "_on_cronjob", save=save)
    assert (len(outcome.follows), outcome.ok) == (int(runs), True)
    assert (outcome.info is None) == runs
    if outcome.info is not None:
        assert re.fullmatch(r"it is \d+ s late, more than its misfire_grace", outcome.info["left_out"])


def test_a_job_that_fails_does_not_stop_the_others() -> None:
    class Handler(BaseHandler):
        @every
        def bad(self) -> None:
            raise KeyError("first")

        @every
        def good(self) -> None:
            self.crawl("http://site.test/good")

        @every
        def worse(self) -> None:
            raise ValueError("second")

    outcome = run(Handler(), "_on_cronjob", save={"tick": 60})
    assert [task.url for task in outcome.follows] == ["http://site.test/good"]
    assert isinstance(outcome.exception, KeyError)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cron": "0 25 * * *"}, "@every: cron='0 25 * * *' cannot be read: Bad hour"),
        ({"cron": "daily"}, "@every: cron='daily' must have five fields: minute hour"),
        ({"cron": ""}, "@every: cron='' must have five fields"),
        ({"cron": "0 2 * * *", "tz": "Shanghai"}, "@every: tz='Shanghai' is no time zone"),
        ({"cron": "0 2 * * *", "minutes": 5}, "@every: give minutes and seconds, or cron, not both"),
        ({"minutes": 5, "max_instances": 0}, "@every: max_instances must be a whole number, 1 or more, not 0"),
        ({"minutes": 5, "misfire_grace": -1}, "@every: misfire_grace must be a number of seconds, 0 or more, not -1"),
    ],
)
def test_a_job_that_cannot_be_read_is_refused_where_it_stands(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match="@every: ") as caught:
        every(**options)
    assert message in str(caught.value)


# --- retries by status --------------------------------------------------------------------------------------------------


def test_retries_by_status_are_options_like_others() -> None:
    class Handler(BaseHandler):
        crawl_config = {"retry_status": {404: 0, 500: 1}}

        @config(retry_status={"503": 9})
        def page(self) -> None: ...

    task = Handler().crawl("http://site.test/", callback=Handler().page, retry_status={500: 2})
    assert task["schedule"] == {"retry_status": {"500": 2, "503": 9, "404": 0}}
    assert Handler().crawl("http://site.test/", retry_status=None)["schedule"] == {}


@pytest.mark.parametrize("value", [404, [404], {"4xx": 1}, {404: -1}, {404: 1.5}, {404: True}, {404: "1"}])
def test_retries_by_status_are_numbers(value: Any) -> None:
    with pytest.raises(TypeError, match="retry_status must be"):
        BaseHandler().crawl("http://site.test/", retry_status=value)
