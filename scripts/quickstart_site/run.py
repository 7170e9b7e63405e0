"""The quickstart: starts the suite, crawls a small shop of its own or the site given, shows what came out, stops the suite.

Run by scripts/quickstart. It uses the command line as a user does, and looks into the databases only to show progress.
"""

import argparse
import contextlib
import json
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

from shop import Shop

from pyspider_lite.database import connect_resultdb, connect_taskdb
from pyspider_lite.database.base import TaskDB
from pyspider_lite.models.project import ProjectState

HERE = Path(__file__).parent
PROJECT = "quickstart"
#: seconds without any progress after which it is given up
PATIENCE = 120.0


def main() -> int:
    """The exit code: 0 when everything was crawled."""
    parser = argparse.ArgumentParser(prog="scripts/quickstart", description=__doc__.partition("\n")[0])
    parser.add_argument(
        "url", nargs="?", help="a site to crawl, on its own host only; not given: a small shop served here"
    )
    parser.add_argument(
        "--pages", type=int, default=200, help="stop after about so many pages of a site (default: 200)"
    )
    parser.add_argument(
        "--folder",
        type=Path,
        help="put everything here (default: databases and log in a new temporary folder, quickstart.json where you are)",
    )
    arguments = parser.parse_args()
    if arguments.url and urlsplit(arguments.url).scheme not in ("http", "https"):
        parser.error(f"{arguments.url} is not an http or https URL")
    told = (arguments.folder or Path()).absolute() / "quickstart.json"
    told.unlink(missing_ok=True)  # that of an earlier crawl must not pass for this one's
    if arguments.folder:
        told.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix="quickstart-", dir=arguments.folder and told.parent))
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the suite is stopped on the way out
    with contextlib.ExitStack() as stack:
        shop = None if arguments.url else stack.enter_context(Shop())
        crawl = Crawl(folder)
        stack.enter_context(crawl.suite())
        crawl.push(
            "site_handler.py" if arguments.url else "shop_handler.py", shop.url if shop else arguments.url, bool(shop)
        )
        state = crawl.watch(None if shop else arguments.pages)
        summary = crawl.summary(shop.requested if shop else None)
    show(summary, state, told)
    return 0 if state.success and (not shop or not state.failed) else 1


class Crawl:
    """One crawl in a folder of its own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._config = folder / "config.json"
        settings = {"data_path": str(folder), "fetcher": {"ca_file": str(HERE / "tls" / "ca.pem")}}
        self._config.write_text(json.dumps(settings, indent=2) + "\n")
        self._taskdb = f"sqlite+taskdb:///{folder}/task.db"
        self._resultdb = f"sqlite+resultdb:///{folder}/result.db"
        self._suite: subprocess.Popen[bytes] | None = None

    @contextlib.contextmanager
    def suite(self) -> Iterator[None]:
        """`all` runs during the block; its log goes to a file."""
        log = self.folder / "log.txt"
        print(f"starting the suite; its log is {log}", flush=True)
        with open(log, "wb") as stream:
            self._suite = subprocess.Popen(self._command("all"), stderr=stream)
        try:
            yield
        finally:
            self._suite.send_signal(signal.SIGTERM)
            self._suite.wait(60)
            print("the suite has stopped", flush=True)

    def push(self, script: str, start: str, at_full_speed: bool) -> None:
        """Store the handler with its start URL put in, and call its on_start."""
        text = (HERE / script).read_text("utf-8")
        file = self.folder / f"{PROJECT}.py"
        file.write_text(re.sub(r"(?m)^START = .*$", lambda _: f"START = {start!r}", text, count=1), "utf-8")
        speed = "unlimited" if at_full_speed else "20"
        subprocess.run(self._command("project", "push", str(file), "--rate", speed, "--burst", speed), check=True)
        subprocess.run(self._command("project", "run", PROJECT), check=True)

    def watch(self, pages: int | None) -> ProjectState:
        """Show progress until nothing is left to do, or about ``pages`` are done."""
        with contextlib.closing(connect_taskdb(self._taskdb)) as taskdb:
            shown, changed, quiet = "", time.monotonic(), 0
            while True:
                state = taskdb.project_states().get(PROJECT) or ProjectState(project=PROJECT)
                line = f"{state.success} done, {state.failed} failed, {state.active} to do"
                if line != shown:
                    shown, changed = line, time.monotonic()
                    print(line, flush=True)
                quiet = quiet + 1 if self._is_over(taskdb, state) else 0
                if quiet >= 3:
                    return state
                if pages is not None and state.success + state.failed >= pages:
                    subprocess.run(self._command("project", "stop", PROJECT), check=True)
                    time.sleep(2.0)  # what is under way comes in
                    return taskdb.project_states()[PROJECT]
                if self._suite is None or self._suite.poll() is not None or time.monotonic() - changed > PATIENCE:
                    end = (self.folder / "log.txt").read_text("utf-8", "replace").splitlines()[-20:]
                    raise SystemExit("\n".join([*end, f"no progress: see {self.folder}/log.txt"]))
                time.sleep(0.3)

    def summary(self, requested: list[str] | None) -> dict[str, object]:
        """What quickstart.json says. ``requested``: what the shop was asked for; of another's site: the tasks that were fetched."""
        with contextlib.closing(connect_resultdb(self._resultdb)) as resultdb:
            rows = [{"url": row.url, "result": json.loads(row.result)} for row in resultdb.select(PROJECT)]
        if requested is None:
            with contextlib.closing(connect_taskdb(self._taskdb)) as taskdb:
                tasks = taskdb.select(PROJECT, limit=100_000)
            requested = [task.url for task in tasks if task.track and not task.url.startswith("data:")]
        database = str((self.folder / "result.db").resolve())
        return {"requested": sorted(requested), "results": rows, "database": database}

    def _is_over(self, taskdb: TaskDB, state: ProjectState) -> bool:
        return state.success + state.failed > 0 and state.active == 0 and not taskdb.controls(0, 1)

    def _command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "pyspider_lite", "-c", str(self._config), *arguments]


def show(summary: dict[str, object], state: ProjectState, told: Path) -> None:
    """Print the results as a table, and write the summary."""
    width = shutil.get_terminal_size((120, 24)).columns
    rows = summary["results"]
    assert isinstance(rows, list)
    print()
    for row in sorted(rows, key=lambda row: row["url"]):
        print(f"{row['url']:<45} {json.dumps(row['result'], ensure_ascii=False)}"[: max(80, width)])
    told.write_text(json.dumps(summary, ensure_ascii=False, indent=2) + "\n", "utf-8")
    print(f"\n{len(rows)} results, {state.success} tasks done, {state.failed} failed")
    print(f"the results are in {summary['database']}, a summary in {told}")


if __name__ == "__main__":
    sys.exit(main())
