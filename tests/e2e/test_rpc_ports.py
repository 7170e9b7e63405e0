"""The XML-RPC ports of a real `all`, used as pyspider's web UI and its users' scripts use them."""

import contextlib
import json
import socket
import subprocess
from collections.abc import Callable
from datetime import datetime
from typing import Any
from urllib.parse import quote
from xmlrpc.client import Fault, ProtocolError, ServerProxy

import msgspec
import pytest

pytestmark = pytest.mark.e2e

SECRET = "s3cret/with:@all %"

SCRIPT = """
from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        self.crawl("data:,first", callback=self.page)

    def page(self, response):
        return {"text": response.text}

    def on_message(self, project, msg):
        return {"from": project, "msg": msg}

    def broken(self, response):
        raise ValueError("no good")
"""


def task(taskid: str, project: str = "shop", callback: str = "page", **schedule: Any) -> dict[str, Any]:
    return {
        "taskid": taskid,
        "project": project,
        "url": f"data:,{taskid}",
        "schedule": schedule,
        "process": {"callback": callback},
    }


@pytest.fixture
def suite(make_suite: Callable[..., Any]) -> Any:
    """One with a project whose crawl is over. It remembers two runs of each."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    suite = make_suite(scheduler={"active_tasks": 2}, fetcher={"xmlrpc_port": number})
    suite.start()
    suite.push("shop", SCRIPT)
    suite.wait(lambda: suite.finished("shop"))
    return suite


def port(suite: Any, role: str) -> ServerProxy:
    """The port of a role."""
    if role == "scheduler":
        ((url,),) = suite.query("task", 'select rpc from "lite-leader"')
    else:
        url = f"http://127.0.0.1:{json.loads(suite.config.read_text())['fetcher']['xmlrpc_port']}/"
    return ServerProxy(url, allow_none=True, use_builtin_types=True)


@pytest.mark.behaviour("S86", "S88", "S89", "S91", "X-S2")
def test_the_scheduler(suite: Any) -> None:
    with port(suite, "scheduler") as rpc:
        assert {"_quit", "newtask", "system.listMethods"} <= set(rpc.system.listMethods())
        assert rpc.size() == 0

        # known when it is answered
        assert rpc.newtask(task("second")) is True
        assert suite.query("task", "select url from taskdb_shop where taskid = 'second'") == [("data:,second",)]
        assert rpc.newtask(task("second")) is True, "it is there"
        for refused in (task("x", "nobody"), task(""), {"url": "x"}, task("x", retries="many"), 5):
            assert rpc.newtask(refused) is False
        suite.wait(lambda: ("data:,second", {"text": "second"}) in suite.results("shop"))

        # and why it was not run again
        suite.wait(lambda: suite.query("task", "select 1 from taskdb_shop where taskid = 'second' and status = 2"))
        assert rpc.newtask(task("second")) is True
        said = suite.command("explain", "shop", "second")
        assert "data:,second was crawled at " in said
        assert "A submission of it" in said and ": seen (it is stored" in said

        # a project that the scheduler has not seen yet, and one that is not started
        (suite.folder / "new.py").write_text(SCRIPT)
        suite.command("project", "push", str(suite.folder / "new.py"), "--name", "new", "--status", "RUNNING")
        assert rpc.update_project() is None
        assert rpc.newtask(task("early", "new")) is True
        suite.command("project", "push", str(suite.folder / "new.py"), "--name", "still", "--status", "TODO")
        assert rpc.newtask(task("x", "still")) is False

        # without a row: only its result is left
        assert rpc.send_task(task("third")) is True
        suite.wait(lambda: ("data:,third", {"text": "third"}) in suite.results("shop"))
        assert suite.query("task", "select * from taskdb_shop where taskid = 'third'") == []
        with pytest.raises(Fault, match="the project nobody is unknown"):
            rpc.send_task(task("x", "nobody"))

        assert rpc.newtask(task("fourth", callback="broken", retries=0)) is True
        suite.wait(lambda: suite.query("task", "select 1 from taskdb_shop where taskid = 'fourth' and status = 3"))
        runs = rpc.get_active_tasks("shop")
        assert [run["taskid"] for _, run in runs] == ["fourth", "second"], "active-tasks are kept"
        time, run = runs[0]
        assert set(run) == {"taskid", "project", "url", "status", "lastcrawltime", "updatetime", "track"}
        assert (run["status"], run["url"], run["updatetime"]) == (3, "data:,fourth", time)
        assert set(run["track"]["fetch"]) == {"ok", "time", "status_code"}
        assert set(run["track"]["process"]) == {"ok", "time", "follows"}
        assert len(rpc.get_active_tasks(None, 1)) == 1
        assert rpc.get_active_tasks("nobody") == []
        # looking changes nothing (X-S2)
        assert rpc.get_active_tasks("shop") == runs
        track = suite.command("task", "show", "shop", "fourth")
        assert "no good" in track
        assert rpc.get_projects_pause_status() == {"new": False, "shop": False, "still": False}


@pytest.mark.behaviour("S87", "S90", "S92", "S93")
def test_what_the_scheduler_counts(suite: Any) -> None:
    with port(suite, "scheduler") as rpc:
        assert rpc.update_project() is None
        assert rpc.newtask(task("well")) is True
        assert rpc.newtask(task("badly", callback="broken", retries=0)) is True
        suite.wait(lambda: suite.query("task", "select 1 from taskdb_shop where taskid = 'badly' and status = 3"))
        suite.wait(lambda: rpc.counter("all", "sum")["shop"].get("success", 0) >= 2)
        assert rpc.get_projects_pause_status() == {"shop": False}
        assert rpc.counter("all", "sum")["shop"]["failed"] == 1
        assert rpc.counter("5m_time", "avg")["shop"]["process_time"] > 0
        for wrong in (("2m", "sum"), ("5m", "most")):
            with pytest.raises(Fault, match="counter: t"):
                rpc.counter(*wrong)
        update = rpc.webui_update()
        assert set(update["counter"]) == {"5m_time", "5m", "1h", "1d", "all"}
        assert update["counter"]["all"]["shop"]["failed"] == 1
        assert update["pause_status"]["shop"] is False


@pytest.mark.behaviour("F45", "X-F8")
def test_the_fetcher_and_quitting(suite: Any) -> None:
    with port(suite, "fetcher") as rpc:
        assert rpc.size() == 0
        assert rpc.counter("5m", "sum")["shop"]["200"] >= 1
        assert rpc.status()["poolsize"] == 100
        answer = msgspec.msgpack.decode(rpc.fetch(task("direct")))
        assert (answer["status_code"], answer["content"]) == (200, "direct")
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    words = suite.words("fetcher", "--xmlrpc-port", str(number))
    with subprocess.Popen(words, cwd=suite.folder, stderr=subprocess.PIPE, text=True) as other:
        try:
            assert other.stderr is not None
            assert any("fetcher starting" in line for line in other.stderr)
            with ServerProxy(f"http://127.0.0.1:{number}/", allow_none=True) as rpc:
                assert rpc._quit() is None
            assert other.wait(20) == 0
        finally:
            other.kill()


def test_what_xml_rpc_has_and_json_has_not_breaks_nothing(suite: Any) -> None:
    with port(suite, "scheduler") as rpc:
        for number, value in enumerate(
            (b"\x80\0", datetime(2026, 1, 1), 2.0**70, float("nan"), "\u2028", {"": [None]})
        ):
            odd = {**task(f"odd{number}"), "fetch": {"save": value}}
            for call, taskid in ((rpc.newtask, f"odd{number}"), (rpc.send_task, f"sent{number}")):
                with contextlib.suppress(Fault):
                    call({**odd, "taskid": taskid})
        assert rpc.newtask(task("sane")) is True
        suite.wait(lambda: ("data:,sane", {"text": "sane"}) in suite.results("shop"))
        assert rpc.send_task(task("sent")) is True
        suite.wait(lambda: ("data:,sent", {"text": "sent"}) in suite.results("shop"))
        assert rpc.size() >= 0
    assert "Traceback" not in suite.log.read_text()


@pytest.mark.behaviour("S85")
def test_a_stand_by_says_where_the_leader_is(suite: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        number = free.getsockname()[1]
    ((url,),) = suite.query("task", 'select rpc from "lite-leader"')
    words = suite.words("scheduler", "--xmlrpc-port", str(number))
    with subprocess.Popen(words, cwd=suite.folder, stderr=subprocess.PIPE, text=True) as stand_by:
        try:
            assert stand_by.stderr is not None
            assert any("standing by" in line for line in stand_by.stderr)
            with ServerProxy(f"http://127.0.0.1:{number}/", allow_none=True) as rpc:
                for call in (rpc.size, rpc.update_project, rpc.webui_update):
                    with pytest.raises(
                        Fault, match=f"this scheduler does not lead now; the one that does is at {url} "
                    ):
                        call()
                assert rpc._quit() is None
            assert stand_by.wait(20) == 0
        finally:
            stand_by.kill()


@pytest.mark.behaviour("C68", "C94", "C98")
def test_the_secret_and_send_message(make_suite: Callable[..., Any]) -> None:
    """A stand-by beside the leader says where that is; a command finds it in the taskdb."""
    suite = make_suite(rpc_secret=SECRET)
    suite.start()
    suite.push("shop", SCRIPT)
    suite.wait(lambda: suite.finished("shop"))
    suite.command("send_message", "shop", "hello: 日本")
    suite.wait(
        lambda: any(result == {"from": "__command__", "msg": "hello: 日本"} for _, result in suite.results("shop"))
    )

    with port(suite, "scheduler") as rpc:
        assert rpc.size() == 0
        with pytest.raises(ProtocolError, match="newtask changes something, so it needs the secret"):
            rpc.newtask(task("second"))
    ((url,),) = suite.query("task", 'select rpc from "lite-leader"')
    with ServerProxy(url.replace("//", f"//:{quote(SECRET, safe='')}@")) as rpc:
        assert rpc.newtask(task("second")) is True
    assert SECRET not in suite.log.read_text()
