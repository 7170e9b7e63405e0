"""Daemons whose ports are taken, that hear signals, whose queues carry rubbish and whose disk is full."""

import contextlib
import random
import re
import signal
import subprocess
import time
from typing import Any

import msgspec
import pytest
import zstandard
from places import HEAD, NOWHERE, PAGE, START, ended, fill, read_until, small_disk, start

from pyspider_lite import codec, message_queue
from pyspider_lite.bench.site import Site
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, ResultBatch, StatusBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role

pytestmark = pytest.mark.e2e


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


# --- signals ---


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_exit_code_tells_the_signal(place, number, code):
    place.write("slow.py", HEAD + START + PAGE + "        import time\n        time.sleep(20)\n")
    processes = {"all": start(place.folder, "all")}
    for role in Role:
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
    QueueName.NEW_TASKS: NewTaskBatch,
    QueueName.STATUS: StatusBatch,
    QueueName.TO_FETCHER: TaskBatch,
    QueueName.TO_PROCESSOR: PageBatch,
    QueueName.CONTROL: PageBatch,
    QueueName.RESULTS: ResultBatch,
}


def broken_messages(queue: QueueName) -> list[tuple[bytes, str]]:
    """Bodies, and the reason why each cannot be read."""
    kind = KINDS[queue].__name__
    other: Any = StatusBatch(items=[]) if queue != QueueName.STATUS else NewTaskBatch(tasks=[])
    zeros = bytes(codec.MAX_DECODED + 1)
    stream = zstandard.ZstdCompressor().compressobj()
    packed = codec.MAGIC + b"\x01"
    page = {"task": {"taskid": "t", "project": "site", "url": "u"}, "response": {"content": {"no": "text"}}}
    forged = codec.MAGIC + b"\x00" + msgspec.msgpack.encode({"type": "pages", "batch": "b", "pages": [page]})
    of_pages = [(forged, "not a PageBatch: content is a dict")] if KINDS[queue] is PageBatch else []
    return [
        *of_pages,
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
        before = {role: suite.children(role) for role in Role}
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
        assert {role: suite.children(role) for role in Role} == before
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
            # it cannot write down what it waits for, but it can be asked
            listed = suite.command("cluster", "list", code=1)
            assert re.search(r"^missing: scheduler \S+ waits for .*task\.db since 20", listed, re.MULTILINE), listed
            (data / "filler").unlink()
            crawled(suite, site)
        finally:
            print("\n".join(line for line in suite.log.read_text().splitlines() if line[1:2] in "WE"))
            code = suite.stop()
    assert code == 143
    log = suite.log.read_text()
    assert "Traceback" not in log
    assert len(re.findall(r"waiting for .*: the disk is full", log)) >= 1
