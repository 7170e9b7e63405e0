"""The quickstart as a user starts it, without the installation."""

import json
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest

ROOT = Path(__file__).parent.parent.parent
pytestmark = pytest.mark.e2e


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, format: str, *arguments: object) -> None:
        pass


@pytest.fixture
def site(tmp_path: Path) -> Iterator[str]:
    """Thirty pages in a chain, served on loopback."""
    folder = tmp_path / "site"
    folder.mkdir()
    for number in range(30):
        links = (
            f"<a href='p{number + 1}.html'>next</a> <a href='http://elsewhere.invalid/'>out</a>" if number < 29 else ""
        )
        (folder / ("index.html" if number == 0 else f"p{number}.html")).write_text(
            f"<html><head><title>Page {number}</title></head><body>{links}</body></html>"
        )
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(_Quiet, directory=str(folder)))
    thread = Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def quickstart(
    folder: Path, *arguments: str, written: str = "."
) -> tuple[subprocess.CompletedProcess[str], dict[str, list[dict[str, str]]]]:
    (folder / "tmp").mkdir()
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "scripts" / "quickstart_site" / "run.py"), *arguments],
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT), "TMPDIR": str(folder / "tmp")},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    try:
        output, _ = process.communicate(timeout=60)
    except subprocess.TimeoutExpired:
        process.send_signal(signal.SIGTERM)  # it stops its suite
        output, _ = process.communicate(timeout=60)
    assert process.returncode == 0, output
    return subprocess.CompletedProcess(process.args, 0, output), json.loads(
        (folder / written / "quickstart.json").read_text("utf-8")
    )


def stored(database: str) -> set[str]:
    connection = sqlite3.connect(database)
    rows = connection.execute("SELECT url FROM resultdb_quickstart").fetchall()
    connection.close()
    assert len(rows) == len(set(rows))
    return {row[0] for row in rows}


def test_the_shop(tmp_path):
    done, summary = quickstart(tmp_path)
    assert len(summary["requested"]) == len(set(summary["requested"])) == 30
    assert len(summary["results"]) == 14
    assert {row["url"] for row in summary["results"]} == stored(summary["database"])
    assert {row["url"] for row in summary["results"]} < set(summary["requested"])
    stock = {row["result"]["title"]: row["result"]["stock"] for row in summary["results"] if "stock" in row["result"]}
    assert stock == {f"Item {number}": number * 7 % 10 for number in range(1, 13)}
    assert "新闻：商店开业" in done.stdout
    assert "14 results, " in done.stdout
    assert sorted(os.listdir(tmp_path)) == ["quickstart.json", "tmp"]
    assert Path(summary["database"]).is_relative_to(tmp_path / "tmp")


def test_a_site(tmp_path, site):
    _, summary = quickstart(tmp_path, site, "--folder", "new/here", written="new/here")
    assert sorted(os.listdir(tmp_path)) == ["new", "site", "tmp"] and os.listdir(tmp_path / "tmp") == []
    assert Path(summary["database"]).is_relative_to(tmp_path / "new/here")
    assert {row["result"]["title"] for row in summary["results"]} == {f"Page {number}" for number in range(30)}
    assert len(summary["requested"]) == 30
    assert {row["url"] for row in summary["results"]} == stored(summary["database"])
