"""What users, disks and strangers do wrong, in commands that end by themselves: what is done -> the sentence -> the exit code, which is compared
exactly.
"""

import os
import re
import sys
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, NamedTuple
from unittest import mock

import pytest
from places import HEAD, NOWHERE, PAGE, SCRIPT, START, Ended, Place, ended, environment, fill, run, small_disk, start

from pyspider_lite import cli

pytestmark = pytest.mark.e2e


def words(line: str) -> Callable[[Place], list[str]]:
    return lambda place: line.split()


def config(content: str | bytes, line: str = "project list") -> Callable[[Place], list[str]]:
    """A command with this config.json."""
    return lambda place: ["-c", place.write("config.json", content), *line.split()]


def one(script: str) -> Callable[[Place], list[str]]:
    return lambda place: ["one", place.write("broken.py", script)]


def crawl(*urls: object) -> Callable[[Place], list[str]]:
    """`one` on a script that crawls these."""
    lines = "".join(f"        self.crawl({url!r}, callback=self.page, retries=0)\n" for url in urls)
    return one(f"{HEAD}    def on_start(self):\n{lines}\n{PAGE}        pass\n")


def with_files(line: str, files: dict[str, str | bytes]) -> Callable[[Place], list[str]]:
    """A command in a folder with these files."""

    def arrange(place: Place) -> list[str]:
        for name, content in files.items():
            place.write(name, content)
        return line.split()

    return arrange


def without(module: str, line: str) -> Callable[[Place], list[str]]:
    """A command in an environment in which this module is not installed."""

    def arrange(place: Place) -> list[str]:
        place.cleanup.enter_context(mock.patch.dict(sys.modules, {module: None}))
        return line.split()

    return arrange


def stored(line: str) -> Callable[[Place], list[str]]:
    """A command in a folder where the project shop is stored, and has a task."""

    def arrange(place: Place) -> list[str]:
        for words in (["push", "shop.py"], ["run", "shop"]):
            assert cli.main(["project", *words]) == 0
        return line.split()

    return arrange


def on_read_only_disk(line: str) -> Callable[[Place], list[str]]:
    """A command in such a folder that became read-only."""

    def arrange(place: Place) -> list[str]:
        stored(line)(place)
        place.read_only_disk()
        return line.split()

    return arrange


def on_full_disk(line: str) -> Callable[[Place], list[str]]:
    """A command in a folder without space."""

    def arrange(place: Place) -> list[str]:
        place.cleanup.enter_context(small_disk(place.folder / "data", "1m"))
        fill(place.folder / "data" / "filler")
        return line.split()

    return arrange


class Row(NamedTuple):
    name: str
    arrange: Callable[[Place], list[str]]
    #: a regular expression that is found in what it says
    said: str
    code: int


TABLE = [
    # config.json
    Row("config: not JSON", config('{"debug": tru}'), r"config\.json: not JSON: line 1, column 11", 2),
    Row("config: empty", config(""), r"config\.json: not JSON: line 1, column 1", 2),
    Row("config: not text", config(b"\xff\xfe{"), r"config\.json: not UTF-8 text \(byte 0\)", 2),
    Row("config: not an object", config("[1]"), r"config\.json: expected one JSON object, got \[1\]", 2),
    Row("config: nested too deeply", config("[" * 100_000), r"config\.json: (nested too deeply|not JSON)", 2),
    Row("config: a folder", words("-c . project list"), r"\.: cannot be read: Is a directory", 2),
    Row("config: missing", words("-c none.json all"), r"none\.json: cannot be read: No such file", 2),
    Row("type: text for a number", config('{"queue-maxsize": "x"}'), r"queue_maxsize: expected a whole number of at least 0, got \"x\"", 2),
    Row("type: true for text", config('{"message-queue": true}'), r"message_queue: expected text, got true", 2),
    Row("type: list for text", config('{"taskdb": ["x"]}'), r"taskdb: expected text, got a list, not shown", 2),
    Row("type: list for the old name", config('{"amqp_url": ["x"]}', "fetcher"), r"amqp_url: expected text, got", 2),
    Row("type: text for a switch", config('{"debug": "maybe"}'), r"debug: expected true or false, got \"maybe\"", 2),
    Row("type: null character", config('{"data-path": "a\\u0000b"}', "all"), r"data_path: expected text, got \"a\\u0000b\"", 2),
    Row("type: half a character", config('{"data-path": "\\ud800"}', "all"), r"data_path: expected text, got", 2),
    Row("type: not a number", config('{"drain-timeout": NaN}'), r"drain_timeout: expected a number of at least 0, got NaN", 2),
    Row("type: infinite", config('{"drain-timeout": 1e999}'), r"drain_timeout: expected a number", 2),
    Row("type: list for a section", config('{"fetcher": []}'), r"fetcher: expected an object with the options of fetcher, got \[\]", 2),
    Row("nested: text for a number", config('{"fetcher": {"poolsize": "many"}}'), r"fetcher\.poolsize: expected a whole number from 1 to 10000", 2),
    Row("nested: object for a number", config('{"fetcher": {"poolsize": {"a": 1}}}'), r"fetcher\.poolsize: expected a whole number", 2),
    Row("nested: fraction for a number", config('{"fetcher": {"poolsize": 1.5}}'), r"fetcher\.poolsize: expected a whole number", 2),
    Row("nested: too large", config('{"scheduler": {"xmlrpc_port": 70000}}'), r"scheduler\.xmlrpc_port: expected a whole number from 0 to 65535", 2),
    Row("nested: object for text", config('{"fetcher": {"fetcher-cls": {"a": 1}}}'), r"fetcher\.fetcher_cls: expected text", 2),
    Row("unknown key: goes on", lambda place: stored("")(place) or config('{"fetcher": {"pol-size": 1}}')(place),
        r"unknown key fetcher\.pol_size is ignored; did you mean fetcher\.poolsize\?", 0),
    Row("retired key: goes on", lambda place: stored("")(place) or config('{"webui": {"port": 5000}}')(place),
        r"webui is ignored: there is no web UI", 0),
    # ports
    # scripts
    Row("push: syntax error", with_files("project push bad.py", {"bad.py": "x = 1\ndef f(:\n"}), r"bad\.py:2: invalid syntax", 2),
    Row("one: syntax error", one("def f(:\n"), r"broken\.py:1: invalid syntax", 2),
    Row("one: null byte", one("x = 1\0\n"), r"broken\.py: .*null byte", 2),
    Row("one: not text", lambda place: ["one", place.write("bad.py", b"\xff\xfe\n")], r"bad\.py: .*(encoding|not a text)", 2),
    Row("one: no scripts", words("one"), r"Missing argument 'SCRIPT\.\.\.'", 2),
    Row("one: not UTF-8", lambda place: ["one", place.write("bad.py", "x = '价'\n".encode("gbk"))], r"bad\.py: cannot be decoded: .*coding: gbk", 2),
    Row("one: missing file", words("one shop.py none.py"), r"none\.py: cannot be read: No such file or directory", 2),
    Row("one: a folder", words("one ."), r"\.: cannot be read: Is a directory", 2),
    Row("one: one name twice", with_files("one a/x.py b/x.py", {"a/x.py": SCRIPT, "b/x.py": SCRIPT}),
        r"a/x\.py and b/x\.py would be one project", 2),
    Row("one: callback that does not exist", one(HEAD + "    def on_start(self):\n        self.crawl('data:,x', callback='nope')\n"), r"failed: broken: .*nope", 1),
    Row("one: callback that raises", one(HEAD + START + PAGE + "        raise ValueError('no good')\n"), r"failed: broken: data:,hello: .*no good", 1),
    Row("one: result that is not JSON", one(HEAD + START + PAGE + "        return {'a': {'b': object()}}\n"), r"failed: broken: data:,hello: .*a\.b", 1),
    Row("one: result inside itself", one(HEAD + START + PAGE + "        a = []\n        a.append(a)\n        return {'a': a}\n"), r"failed: broken: data:,hello: ", 1),
    # URLs that are none
    Row("URL: unknown schemes", crawl("htp:/x", "ftp://127.0.0.1/", "file:///etc/passwd", "/x", ""),
        r"(?s)(?=.*failed: broken: htp:/x: .*only http:// and https:// URLs)(?=.*broken: ftp:)(?=.*broken: file:)(?=.*broken: /: )", 1),
    Row("URL: no host, no port", crawl("http://", "http://127.0.0.1:99999/", "http://a b/"),
        r"(?s)(?=.*broken: http:///: .*no host name)(?=.*99999' is no port number)(?=.*a b' is no host name)", 1),
    Row("URL: broken brackets", crawl("http://[::1"), r"crawl\('http://\[::1'\): dropped: not a URL: Invalid IPv6 URL", 0),
    Row("URL: half a character", crawl("http://127.0.0.1:1/\ud800"), r"dropped: not a URL: .*surrogates not allowed", 0),
    Row("URL: a number among URLs", crawl(["data:,x", 5]), r"crawl\(5\): dropped: a URL must be a str, not int", 0),
    Row("URL: too long", crawl("http://127.0.0.1/" + "x" * 2000), r"dropped: .*1024", 0),
    Row("URL: a number or None is ignored", crawl(5, None), r"crawl\(5\): not a URL, ignored", 0),
    # folders and databases
    Row("data-path: a file", words("--data-path shop.py all"), r"data-path shop\.py cannot be created: File exists", 3),
    Row("data-path: below a file", words("--data-path shop.py/x all"), r"data-path shop\.py/x cannot be created: Not a directory", 3),
    Row("read-only: all", on_read_only_disk("all"), r"data-path \./data cannot be written: Read-only file system", 3),
    Row("read-only: scheduler", on_read_only_disk(f"--message-queue {NOWHERE} scheduler --no-xmlrpc"), r"data/\w+\.db: .*(read-only|may be written)", 3),
    Row("read-only: push", on_read_only_disk("project push shop.py"), r"data/project\.db: .*(read-only|may be written)", 3),
    Row("read-only: run", on_read_only_disk("project run shop"), r"data/\w+\.db: .*(read-only|may be written)", 3),
    Row("read-only: list", on_read_only_disk("project list"), r"data/\w+\.db: .*(read-only|may be written)", 3),
    Row("full disk: all", on_full_disk("all"), r"data-path \./data cannot be written: No space left on device", 3),
    Row("full disk: push", on_full_disk("project push shop.py"), r"data/project\.db: the disk is full", 3),
    Row("database: folder is missing", words("--projectdb sqlite+projectdb:///no/such/p.db project push shop.py"), r"no/such/p\.db: the folder no does not exist", 2),
    Row("database: folder is missing, all", words("--projectdb sqlite+projectdb:///no/such/p.db all"), r"no/such/p\.db: the folder no does not exist", 2),
    Row("database: no database", with_files("project list", {"data/project.db": b"no database at all" * 200}), r"project\.db: the file is not an SQLite database", 3),
    Row("database: nothing here", words("project list"), r"there is no database \./data/project\.db: nothing was crawled here yet", 2),
    Row("database: malformed", words("--taskdb nonsense task list shop"), r"nonsense: not a database URL; use sqlite\+taskdb://", 2),
    Row("database: malformed, all", words("--taskdb nonsense all"), r"nonsense: not a database URL; use sqlite\+taskdb://", 2),
    Row("database: two slashes", words("--taskdb sqlite+taskdb://t.db task list shop"), r"three slashes begin a path", 2),
    Row("database: wrong kind", words("--taskdb sqlite+projectdb:///x.db task list shop"), r"names a projectdb, but a taskdb is wanted", 2),
    Row("database: unknown scheme", words("--taskdb orakle+taskdb://h/x task list shop"), r"unknown database 'orakle'", 2),
    Row("database: no longer supported", words("--resultdb mongodb+resultdb://u:secret@h/x one shop.py"), r"u:\*\*\*@h/x: mongodb is no longer supported", 2),
    Row("database: no port", words("--taskdb mysql+taskdb://u:secret@127.0.0.1:1x/d task list shop"), r"u:\*\*\*@127.0.0.1:1x/d: the port must be a number", 2),
    Row("database: port too large", words("--taskdb mysql+taskdb://u:secret@127.0.0.1:70000/d task list shop"), r"u:\*\*\*@127.0.0.1:70000/d: the port must be a number from 1 to 65535", 2),
    Row("database: nobody answers", words("--taskdb mysql+taskdb://u:secret@127.0.0.1:1/d task list shop"), r"u:\*\*\*@127.0.0.1:1/d: .*refused", 3),
    Row("database: missing driver", without("psycopg", "--taskdb sqlalchemy+postgresql+taskdb://u:secret@127.0.0.1:1/d task list shop"), r"u:\*\*\*@.*: needs psycopg; install it with: pip install", 2),
    # message queues
    Row("queue: a list of nodes", words("--message-queue redis://:secret@127.0.0.1:1,127.0.0.1:2/0 all"), r"message-queue|redis://:\*\*\*@127.0.0.1:1", 2),
    Row("queue: unknown scheme", words("--message-queue rabbit://x fetcher"), r"no message queue is called 'rabbit'", 2),
    Row("queue: malformed", words("--message-queue builtin processor"), r"'builtin' is not the URL of a message queue", 2),
    Row("queue: memory of nobody else", words("--message-queue memory://x all"), r"message-queue memory://x: daemons are processes and do not share memory", 2),
    Row("queue: nobody serves it", words("result_worker"), r"message-queue is not set, and no `pyspider_lite all` serves", 3),
    # options
    Row("option: unknown", words("fetcher --polsize 3"), r"No such option", 2),
    Row("option: wrong type", words("fetcher --poolsize x"), r"--poolsize: expected a whole number from 1 to 10000, got \"x\"", 2),
    Row("option: class that is none", words(f"--message-queue {NOWHERE} fetcher --no-xmlrpc --fetcher-cls os.path.nope"), r"fetcher-cls: os\.path\.nope cannot be loaded", 2),
    Row("option: a proxy's port", words(f"--message-queue {NOWHERE} fetcher --no-xmlrpc --proxy u:secret@h:99999"), r"fetcher\.proxy: the proxy 'h:99999' is no host:port: a port is a number from 1 to 65535", 2),
    Row("option: CA file is missing", words(f"--message-queue {NOWHERE} fetcher --no-xmlrpc --ca-file nope.pem"), r"ca-file nope\.pem: no such file", 2),
    Row("option: logging file is missing", words("--logging-config nope.ini project list"), r"nope\.ini: not usable as logging configuration", 2),
    Row("push: file is missing", words("project push none.py"), r"none\.py: cannot be read: No such file or directory", 2),
    Row("push: null byte", with_files("project push bad.py", {"bad.py": "x = 1\0\n"}), r"bad\.py: .*null byte", 2),
    Row("push: bad name", lambda place: ["project", "push", "shop.py", "--name", "a b"], r"'a b' cannot be a project's name", 2),
    Row("push: bad rate", words("project push shop.py --rate fast"), r'--rate: expected a number of at least 0 or "unlimited", got "fast"', 2),
    Row("push: bad status", words("project push shop.py --status GO"), r"'GO' is not one of", 2),
    # names
    Row("command: unknown", words("schedular"), r"there is no command schedular; did you mean scheduler\?", 2),
    Row("project run: unknown", stored("project run shpo"), r"there is no project shpo; did you mean shop\?", 2),
    Row("result export: unknown", stored("result export none"), r"there is no database \./data/result\.db|no results of a project none", 2),
    Row("task list: nothing here", words("task list shop"), r"there is no database \./data/task\.db", 2),
    Row("task show: unknown", stored("task show shop none"), r"there is no task none in a project shop", 2),
]  # fmt: skip


#: commands that the table also lets start, or begin to start
STARTS_SOMETHING = {"all", "one", "scheduler"}


#: scripts that do not load: they are tried once, so each ends in seconds
UNLOADABLE = [
    Row("one: import of nothing", one("import nothing_of_that_name\n"), r"failed: broken: data:,on_start: .*nothing_of_that_name", 2),
    Row("one: no Handler", one("x = 1\n"), r"failed: broken: data:,on_start: .*BaseHandler", 2),
    Row("one: empty script", one(""), r"failed: broken: data:,on_start: .*BaseHandler", 2),
    Row("one: exception at import", one("raise ValueError('not today')\n"), r"failed: broken: data:,on_start: .*not today", 2),
    Row("one: exit at import", one("import sys\nsys.exit(7)\n"), r"failed: broken: data:,on_start: .*7", 2),
]  # fmt: skip


@pytest.fixture(scope="module")
def unloadable(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Ended]:
    """What each of them came to. All run at the same time, because most of it is waiting."""
    with ExitStack() as cleanup:
        begun = {}
        for row in UNLOADABLE:
            place = Place(tmp_path_factory.mktemp("unloadable"), cleanup)
            begun[row.name] = start(place.folder, *row.arrange(place))
            cleanup.callback(begun[row.name].kill)
        return {name: ended(process, 60.0) for name, process in begun.items()}


def judge(outcome: Any, said: str, code: int) -> None:
    assert re.search(said, outcome.err), outcome.err
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert "secret" not in outcome.err
    if code:
        assert outcome.out == ""


@pytest.mark.parametrize(("name", "said", "code"), [(row.name, *row[2:]) for row in UNLOADABLE])
def test_scripts_that_do_not_load(unloadable, name, said, code):
    judge(unloadable[name], said, code)
    assert unloadable[name].err.count("failed: broken: ") == 1
    assert "task retry" not in unloadable[name].err


@pytest.mark.parametrize(("arrange", "said", "code"), [row[1:] for row in TABLE], ids=[row.name for row in TABLE])
def test_bad_input_gets_a_sentence_and_its_exit_code(place, command, monkeypatch, arrange, said, code):
    monkeypatch.chdir(place.folder)
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    line = arrange(place)
    # what starts no daemon is as good, and quicker, in this process
    judge(run(place.folder, *line) if STARTS_SOMETHING & set(line) else command(*line), said, code)
