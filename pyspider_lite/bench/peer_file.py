"""How another benchmark starts us (`bench --peer-file`): JSON files like those that the harness of the peers reads, one for `all` and one for
the daemons on Redis and MariaDB. ``python -m pyspider_lite.bench.peer_file`` is the program in them that starts the crawl and prints results.

The harness runs the commands in an empty folder, with START_URL in the environment, and reads the results from ``out``: a database, or what a
program prints.
"""

import contextlib
import json
import os
import secrets
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from pyspider_lite import assembly, configuration
from pyspider_lite.bench import crawl

_PROJECT = "bench"
#: where that harness has its servers, and who may use them
_REDIS = "redis://127.0.0.1:7801/0"
_MARIADB = "mysql+{kind}://bench:bench@127.0.0.1:7802/pyspider_{kind}"
_DAEMONS = ("scheduler", "fetcher", "processor", "processor", "result_worker")


def files(handler: str = "links") -> dict[str, dict[str, Any]]:
    """Name of each file -> what is in it."""
    ours = [sys.executable, "-m", "pyspider_lite"]
    here = [sys.executable, "-m", "pyspider_lite.bench.peer_file"]
    databases = {kind.upper(): _MARIADB.format(kind=kind) for kind in ("taskdb", "projectdb", "resultdb")}
    return {
        "pyspider-lite-all.json": {
            "cmds": [[*ours, "all", "--processor-num", "2"]],
            "services": [],
            "env": {},
            "out": "sqlite:data/result.db",
            "after": [*here, "start", handler],
        },
        "pyspider-lite-redis.json": {
            "cmds": [[*ours, role] for role in _DAEMONS],
            "services": ["redis", "mariadb"],
            "env": {"AMQP_URL": _REDIS, **databases},
            "out": "cmd:" + shlex.join([*here, "results", databases["RESULTDB"]]),
            "after": [*here, "start", handler],
        },
    }


def show(folder: str) -> None:
    """Print the files, and write them into a folder if one is named."""
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for name, content in files().items():
        text = json.dumps(content)
        print(f"{name}: {text}")
        if folder:
            (Path(folder) / name).write_text(text + "\n")


def start(url: str, handler: str) -> None:
    """Store the project and have its on_start called; the databases are those of the environment and the folder."""
    # the harness may have left the databases as they were after the run before, and broken that off
    for before in filter(None, _project("list", "--format", "jsonl", check=False).splitlines()):
        head = json.loads(before)
        if head["name"].startswith(f"{_PROJECT}_") and head["status"] != "STOP":
            _project("stop", head["name"])
    project = f"{_PROJECT}_{secrets.token_hex(4)}"
    file = Path(f"{project}.py")
    file.write_text(crawl.script(handler, url))
    _project("push", str(file), "--name", project, "--rate", "unlimited")
    _project("run", project)


def _project(*words: str, check: bool = True) -> str:
    """What the command prints."""
    command = [sys.executable, "-m", "pyspider_lite", "project", *words]
    return subprocess.run(command, check=check, stdout=subprocess.PIPE, text=True).stdout


def print_results(resultdb_url: str) -> None:
    """A line of JSON each, of the project that was started in this folder; nothing as long as there is none."""
    started = [file.stem for file in Path().glob(f"{_PROJECT}_*.py")]
    options = configuration.load(None, {"resultdb": resultdb_url}, {}).settings
    with contextlib.closing(assembly.connect_resultdb(options)) as resultdb:
        for project in started:
            for row in resultdb.select(project):
                print(row.result)


if __name__ == "__main__":
    _, word, argument = sys.argv
    if word == "start":
        start(os.environ["START_URL"], argument)
    else:
        print_results(argument)
