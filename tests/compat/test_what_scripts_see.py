"""What a handler has around it while a callback runs."""

import subprocess
import sys
from typing import Any

import pytest

from pyspider_lite import BaseHandler, Response, catch_status_code_error, config, every
from pyspider_lite.handler import not_send_status


def run(handler: BaseHandler, callback: str, response: Response, **task: Any) -> Any:
    whole = {"taskid": "t", "url": "http://a/", "process": {"callback": callback}, **task}
    return handler._run_task(whole, response)


@pytest.mark.behaviour("H11", "H13", "H15")
def test_during_a_callback_and_outside() -> None:
    class Handler(BaseHandler):
        seen: Any = None

        def page(self, response: Response, task: dict[str, Any]) -> None:
            self.seen = (self.task is task, self.response is response, dict(self.save), self.is_debugger())

    handler = Handler()
    assert (handler.task, handler.response, handler.save) == (None, None, None)
    run(handler, "page", Response(status_code=200), track={"save": {"n": 1}})
    assert handler.seen == (True, True, {"n": 1}, None)
    assert (handler.task, handler.response, handler.save) == (None, None, None)
    handler.__env__ = {"debugger": True}
    assert handler.is_debugger()
    for name in ("crawl", "send_message", "on_message", "on_result", "on_finished", "get_taskid"):
        assert callable(getattr(handler, name))


@pytest.mark.behaviour("H30", "H36")
def test_decorators_in_any_order() -> None:
    class Handler(BaseHandler):
        @every(minutes=5)
        @config({"age": 5}, priority=1)
        @catch_status_code_error
        @not_send_status
        def one(self, response: Response) -> int:
            return response.status_code

        @not_send_status
        @catch_status_code_error
        @config(age=5, priority=1)
        @every(minutes=5)
        def two(self, response: Response) -> int:
            return response.status_code

    handler = Handler()
    for name in ("one", "two"):
        assert handler.crawl("http://a/", callback=name)["schedule"] == {"age": 5, "priority": 1}
        outcome = run(handler, name, Response(status_code=500))
        assert outcome.ok and outcome.no_status and outcome.items[0].result == "500"
    assert handler.cron_jobs() == [("one", 300), ("two", 300)]


@pytest.mark.behaviour("X-K8", "H22")
def test_not_modified() -> None:
    class Handler(BaseHandler):
        def plain(self, response: Response) -> None:
            raise AssertionError("called")

        @catch_status_code_error
        def catching(self, response: Response) -> int:
            return response.status_code

    response = Response(status_code=304, error="HTTP 304: Not Modified")
    outcome = run(Handler(), "plain", response)
    assert outcome.ok and not outcome.items
    assert run(Handler(), "catching", response).items[0].result == "304"


@pytest.mark.behaviour("H34", "X-K6")
def test_what_cron_jobs_return_is_thrown_away() -> None:
    class Handler(BaseHandler):
        @every(seconds=2)
        def job(self) -> dict[str, int]:
            self.crawl("http://a/", callback="job")
            return {"n": 1}

    outcome = run(Handler(), "_on_cronjob", Response(status_code=200, save={"tick": 4}))
    assert outcome.no_status and not outcome.items and [follow.url for follow in outcome.follows] == ["http://a/"]
    assert not run(Handler(), "_on_cronjob", Response(status_code=200, save={"tick": 5})).follows


@pytest.mark.behaviour("H8")
def test_a_console_in_a_script() -> None:
    code = "from pyspider_lite import old_names; old_names.install()\n"
    code += "from pyspider.libs.utils import python_console\ndef f():\n    answer = 41\n    python_console()\nf()"
    done = subprocess.run(
        [sys.executable, "-c", code], input="print('it is', answer + 1)\n", capture_output=True, text=True, timeout=60
    )
    assert "it is 42" in done.stdout
