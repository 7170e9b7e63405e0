"""What users, disks and strangers do wrong: what is done -> the sentence -> the exit code, which is compared exactly.

The table's commands end by themselves. Below it are the cases that need a suite at work: broken messages, a full disk, signals.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

import pytest
import zstandard

from pyspider_lite import cli, codec, message_queue, models
from pyspider_lite.bench.site import Site
from pyspider_lite.models import QueueName

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.e2e

SCRIPT = (
    "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    def on_start(self):\n        pass\n"
)
HEAD = "from pyspider_lite import BaseHandler\n\n\nclass Handler(BaseHandler):\n    retry_delay = {0: 0}\n\n"
START = "    def on_start(self):\n        self.crawl('data:,hello', callback=self.page, retries=0)\n\n"
PAGE = "    def page(self, response):\n"
NOWHERE = "builtin:///nonexistent/queue.sock"


class Place:
    """A test's folder, and what must be undone at its end."""

    def __init__(self, folder: Path, cleanup: ExitStack) -> None:
        self.folder = folder
        self.cleanup = cleanup

    def write(self, name: str, content: str | bytes) -> str:
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return name

    def taken_port(self, port: int = 0) -> int:
        """A port of 127.0.0.1 that somebody listens on."""
        listener = socket.socket()
        self.cleanup.callback(listener.close)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(("127.0.0.1", port))
        listener.listen()
        return int(listener.getsockname()[1])

    def read_only_disk(self) -> None:
        """What is in data/ now is all that there will be."""
        kept = self.folder / "kept"
        (self.folder / "data").rename(kept) if (self.folder / "data").exists() else kept.mkdir()
        self.cleanup.enter_context(small_disk(self.folder / "data", "16m"))
        shutil.copytree(kept, self.folder / "data", dirs_exist_ok=True)
        mount("-o", "remount,ro", str(self.folder / "data"))


def mount(*arguments: str) -> None:
    done = subprocess.run(["mount", *arguments], capture_output=True, text=True)
    assert done.returncode == 0, (
        f"these tests need to mount a tmpfs (run them as root, with CAP_SYS_ADMIN): {done.stderr}"
    )


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[None]:
    """A real file system of that size at ``folder``."""
    folder.mkdir(exist_ok=True)
    mount("-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder))
    try:
        yield
    finally:
        # lazily: a process that a failed test left behind must not keep it
        subprocess.run(["umount", "-l", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take all space that is left."""
    with open(path, "wb", buffering=0) as file, contextlib.suppress(OSError):
        for size in (65536, 4096):
            with contextlib.suppress(OSError):
                while True:
                    file.write(bytes(size))


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with ExitStack() as cleanup:
        found = Place(tmp_path, cleanup)
        found.write("shop.py", SCRIPT)
        yield found


# --- commands that end by themselves ---


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
    Row("one: no Handler", one("x = 1\n"), r"failed: broken: data:,on_start: .*BaseHandler", 1),
    Row("one: empty script", one(""), r"failed: broken: data:,on_start: .*BaseHandler", 1),
    Row("one: exception at import", one("raise ValueError('not today')\n"), r"failed: broken: data:,on_start: .*not today", 1),
    Row("one: exit at import", one("import sys\nsys.exit(7)\n"), r"failed: broken: data:,on_start: .*7", 1),
    Row("one: import of nothing", one("import nothing_of_that_name\n"), r"failed: broken: data:,on_start: .*nothing_of_that_name", 1),
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


class Ended(NamedTuple):
    code: int
    out: str
    err: str


def environment() -> dict[str, str]:
    """Ours, without what settings are read from."""
    ours = {"TASKDB", "PROJECTDB", "RESULTDB", "AMQP_URL", "QUEUE_MAXSIZE", "SCHEDULER_XMLRPC_PORT", "FETCHER_XMLRPC_PORT"}  # fmt: skip
    return {name: value for name, value in os.environ.items() if name not in ours} | {"PYTHONPATH": str(ROOT)}


def start(folder: Path, *arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "pyspider_lite", *arguments],
        cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options,
    )  # fmt: skip


def ended(process: subprocess.Popen[str], timeout: float = 30.0) -> Ended:
    try:
        out, err = process.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        pytest.fail(f"it did not end\n{out}\n{err}")
    return Ended(process.returncode, out, err)


def run(folder: Path, *arguments: str) -> Ended:
    return ended(start(folder, *arguments))


@pytest.mark.parametrize(("arrange", "said", "code"), [row[1:] for row in TABLE], ids=[row.name for row in TABLE])
def test_bad_input_gets_a_sentence_and_its_exit_code(place, command, monkeypatch, arrange, said, code):
    monkeypatch.chdir(place.folder)
    for name in os.environ.keys() - environment().keys():
        monkeypatch.delenv(name)
    line = arrange(place)
    # what starts no daemon is as good, and quicker, in this process
    outcome = run(place.folder, *line) if STARTS_SOMETHING & set(line) else command(*line)
    assert re.search(said, outcome.err), outcome.err
    assert outcome.code == code, outcome.err
    assert "Traceback" not in outcome.err
    assert "secret" not in outcome.err
    if code:
        assert outcome.out == ""


# --- a default port in use ---


PORTS = {
    "a default port in use": (["scheduler"], 23333, r"port 23333 is in use: XML-RPC listens on 23\d\d\d"),
    "a port in use": (["fetcher", "--xmlrpc-port", "0PORT"], 0, r"port \d+ is in use: XML-RPC listens on \d+"),
    "public, a fetcher": (
        ["fetcher", "--xmlrpc-host", "0.0.0.0"], None,
        r"xmlrpc-host 0\.0\.0\.0 can be reached from other machines: set rpc-secret; the fetcher works without XML-RPC",
    ),
    "public, a scheduler": (
        ["scheduler", "--xmlrpc-host", "0.0.0.0", "--xmlrpc-port", "0"], None,
        r"0\.0\.0\.0 can be reached from other machines: set rpc-secret; XML-RPC listens on 127\.0\.0\.1 instead",
    ),
    "another machine's, a fetcher": (
        ["--rpc-secret", "secret", "fetcher", "--xmlrpc-host", "192.0.2.1"], None,
        r"xmlrpc-host 192\.0\.2\.1 is not an address of this machine; the fetcher works without XML-RPC",
    ),
    "another machine's, a scheduler": (
        ["--rpc-secret", "secret", "scheduler", "--xmlrpc-host", "192.0.2.1", "--xmlrpc-port", "0"], None,
        r"192\.0\.2\.1 is not an address of this machine; XML-RPC listens on 127\.0\.0\.1 instead",
    ),
}  # fmt: skip


@pytest.mark.parametrize(("line", "taken", "said"), PORTS.values(), ids=PORTS)
def test_no_trouble_with_xml_rpc_stops_a_daemon(place, line, taken, said):
    port = 0
    if taken is not None:
        with contextlib.suppress(OSError):  # whoever has it, it is in use
            port = place.taken_port(taken)
    words = [word.replace("0PORT", str(port)) for word in line]
    process = start(place.folder, "--message-queue", NOWHERE, *words)
    place.cleanup.callback(process.kill)
    lines = read_until(process, " starting, pid")
    process.send_signal(signal.SIGTERM)
    assert len(re.findall(said, lines)) == 1, lines
    assert "secret\n" not in lines
    assert ended(process).code == 143


def read_until(process: subprocess.Popen[str], text: str) -> str:
    """What it says, up to the line with ``text``."""
    assert process.stderr is not None
    lines = ""
    for line in process.stderr:
        lines += line
        if text in line:
            return lines
    pytest.fail(f"it ended without saying {text!r}:\n{lines}")


# --- signals ---


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_tells_the_signal(place, number, code):
    place.write("slow.py", HEAD + START + PAGE + "        import time\n        time.sleep(20)\n")
    processes = {"all": start(place.folder, "all")}
    for role in models.Role:
        processes[role] = start(place.folder, "--data-path", role, "--message-queue", NOWHERE, role)
    processes["one"] = start(place.folder, "--drain-timeout", "0.5", "one", "--verbose", "slow.py")
    for name, process in processes.items():
        place.cleanup.callback(process.kill)
        read_until(process, {"all": "processor starting, pid", "one": "data:,hello"}.get(name, f"{name} starting, pid"))
    for process in processes.values():
        process.send_signal(number)
    for name, process in processes.items():
        outcome = ended(process)
        assert (name, outcome.code, outcome.out) == (name, code, "")
        assert "Traceback" not in outcome.err, name


# --- a suite at work ---

CRAWL = """
import re

from pyspider_lite import BaseHandler


class Handler(BaseHandler):
    retry_delay = {0: 0.1, '': 0.1}

    def on_start(self):
        self.crawl(%r, callback=self.page)

    def page(self, response):
        for link in re.findall(r'href="(/[0-9]+\\.html)"', response.text):
            self.crawl(response.urljoin(link) if hasattr(response, 'urljoin') else %r + link, callback=self.page)
        return {'url': response.url, 'text': response.text * %d}
"""


def script_for(site: Site, times: int = 1) -> str:
    return CRAWL % (site.url, site.url.removesuffix("/0.html"), times)


def crawled(suite: Any, site: Site) -> None:
    """Wait for the end of the crawl; it was complete, each page once."""
    suite.wait(lambda: suite.finished("site"), 60)
    root = site.url.removesuffix("0.html")
    found = [url for (url,) in suite.query("result", "select url from resultdb_site where url like 'http%'")]
    assert sorted(found) == sorted(f"{root}{index}.html" for index in range(site.pages))
    assert set(suite.statuses("site")) == {2}


KINDS: dict[str, Any] = {
    QueueName.NEW_TASKS: models.NewTaskBatch,
    QueueName.STATUS: models.StatusBatch,
    QueueName.TO_FETCHER: models.TaskBatch,
    QueueName.TO_PROCESSOR: models.PageBatch,
    QueueName.CONTROL: models.PageBatch,
    QueueName.RESULTS: models.ResultBatch,
}


def broken_messages(queue: QueueName) -> list[tuple[bytes, str]]:
    """Bodies, and the reason why each cannot be read."""
    kind = KINDS[queue].__name__
    other: Any = models.StatusBatch(items=[]) if queue != QueueName.STATUS else models.NewTaskBatch(tasks=[])
    zeros = bytes(codec.MAX_DECODED + 1)
    stream = zstandard.ZstdCompressor().compressobj()
    packed = codec.MAGIC + b"\x01"
    return [
        (random.Random(queue).randbytes(2000), "not a message of pyspider_lite"),
        (b"", "not a message of pyspider_lite"),
        (b"PSL\x09" + codec.encode(other)[4:], "message format version b'\\t': this is version 1"),
        (codec.MAGIC + b"\x07x", "unknown compression b'\\x07'"),
        (codec.encode(other), f"not a {kind}: Invalid value"),
        (codec.MAGIC + b"\x00\x82\xa4type", f"not a {kind}: Input data was truncated"),
        (codec.MAGIC + b"\x00" + b"\x91" * 100_000, f"not a {kind}: "),
        (packed + b"no zstd", "broken compression: "),
        (packed + zstandard.ZstdCompressor().compress(zeros), "the message decompresses to more than is allowed"),
        (packed + stream.compress(zeros) + stream.flush(), "broken compression: "),  # it does not tell its size
    ]


def test_broken_bytes_on_each_queue_are_kept_aside_with_the_reason(make_suite):
    with Site(150, delay=0.05) as site:
        suite = make_suite()
        suite.start()
        suite.push("site", script_for(site))
        suite.wait(lambda: len(suite.results("site")) > 5)
        before = {role: suite.children(role) for role in models.Role}
        expected = []
        for name in QueueName:
            queue = message_queue.connect(f"builtin://{suite.folder}/data/queue.sock", name)
            for body, reason in broken_messages(name):
                queue.put(body, 10.0)
                expected.append((str(name), reason))
            queue.close()
        count = 'select count(*) from "lite-dead-letter"'
        suite.wait(lambda: suite.query("task", count) == [(len(expected),)], 30)
        crawled(suite, site)
        assert {role: suite.children(role) for role in models.Role} == before
    rows = suite.query("task", 'select queue, reason from "lite-dead-letter"')
    for queue, reason in expected:
        row = next((row for row in rows if row[0] == queue and row[1].startswith(reason)), None)
        assert row is not None, (queue, reason, rows)
        rows.remove(row)
    assert "Traceback" not in suite.log.read_text()


def test_a_full_disk_is_waited_for(make_suite):
    suite = make_suite()
    data = suite.folder / "data"
    with Site(150, delay=0.02) as site, small_disk(data, "8m"):
        suite.start()
        try:
            suite.push("site", script_for(site, times=4))
            suite.wait(lambda: len(suite.results("site")) > 5)
            fill(data / "filler")
            suite.wait(lambda: "the disk is full" in suite.log.read_text())
            full = time.monotonic()
            refused = subprocess.run(suite.words("project", "push", suite.folder / "site.py"), capture_output=True, text=True, cwd=suite.folder)  # fmt: skip
            assert re.search(
                r"^pyspider_lite: .*data/project\.db: the disk is full( \(database or disk is full\))?$", refused.stderr
            ), refused
            assert (refused.returncode, refused.stdout) == (3, "")
            # longer than a term of leadership, which is kept in the same database
            suite.wait(lambda: time.monotonic() > full + 7)
            (data / "filler").unlink()
            crawled(suite, site)
        finally:
            print("\n".join(line for line in suite.log.read_text().splitlines() if line[1:2] in "WE"))
            code = suite.stop()
    assert code == 143
    log = suite.log.read_text()
    assert "Traceback" not in log
    assert len(re.findall(r"waiting for .*: the disk is full", log)) >= 1
