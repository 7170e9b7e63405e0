"""Other crawlers, measured on the same site in the same run: `bench --peer NAME`.

Each has an environment of its own, made by pip when it is first needed; none is a dependency of ours. The spiders beside this file are run
by that environment's Python. They do what our handler does: take the title, follow every link of the site once, write a line a page.
Settings: 64 requests at once, no delay, robots.txt not asked for, warnings only; else the defaults.
"""

import contextlib
import hashlib
import json
import os
import resource
import subprocess
import sys
import time
import venv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspider_lite.bench import crawl, processes
from pyspider_lite.bench.closing import Closing
from pyspider_lite.bench.servers.redis import Redis
from pyspider_lite.errors import RefusedToStart

CONCURRENCY = 64
#: seconds for pip, and for a peer to end by itself or after SIGTERM
_INSTALL, _END = 600.0, 5.0


class Peer(NamedTuple):
    """What to install and what to run."""

    #: version pins, so that figures can be made again
    packages: Sequence[str]
    #: file beside this one
    spider: str
    processes: int = 1
    #: it needs a Redis
    redis: bool = False
    environ: Mapping[str, str] = {}


_SCRAPY = ("scrapy==2.19.0", "twisted==26.10.0")
PEERS = {
    "scrapy": Peer(_SCRAPY, "scrapy_spider.py"),
    "scrapy-redis": Peer((*_SCRAPY, "scrapy-redis==0.9.1"), "scrapy_redis_spider.py", processes=2, redis=True),
    "crawlee": Peer(("crawlee[parsel]==1.11.0",), "crawlee_spider.py"),
}


def python(name: str) -> Path:
    """The interpreter of a peer's environment, which is made if it is not there. Raises RefusedToStart if pip fails."""
    packages = PEERS[name].packages
    digest = hashlib.sha256(repr((packages, sys.version_info[:2])).encode()).hexdigest()[:8]
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = cache / "pyspider_lite" / "peers" / f"{name}-{digest}"
    program, done = folder / "bin" / "python", folder / "complete"
    if not done.exists():
        print(f"installing {', '.join(packages)} into {folder}", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        words = [str(program), "-m", "pip", "install", "--quiet", *packages]
        installed = subprocess.run(words, capture_output=True, text=True, timeout=_INSTALL)
        if installed.returncode:
            reason = (installed.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RefusedToStart(f"{name} cannot be installed: {reason}")
        done.touch()
    return program


def measure(folder: Path, target: crawl.Target, name: str) -> dict[str, Any]:
    """Have a peer crawl ``target``; figures like those of `crawl.measure`."""
    program = python(name)
    target.forget()
    with PeerRun(folder, PEERS[name], program, target) as run:
        figures = crawl.watch(run, target)
        run.stop()
        return {"name": name, **figures, "problems": crawl.check(run.rows(), target)}


class PeerRun(Closing):
    """The processes of a peer, with the server that it needs."""

    buffered = True

    def __init__(self, folder: Path, peer: Peer, program: Path, target: crawl.Target) -> None:
        self._folder = folder
        self._peer = peer
        self._program = program
        self._target = target
        self._stack = contextlib.ExitStack()
        self._redis: Redis | None = None
        self._roots: list[subprocess.Popen[bytes]] = []
        self._ended = _of_ended()
        #: file -> where reading goes on, and lines so far
        self._read: dict[Path, tuple[int, int]] = {}

    def start(self) -> None:
        """Start its server and its processes."""
        self._folder.mkdir(parents=True, exist_ok=True)
        environ = {
            **os.environ,
            **self._peer.environ,
            "START_URL": self._target.url,
            "CONCURRENCY": str(CONCURRENCY),
            "PYTHONWARNINGS": "ignore",
            "no_proxy": "127.0.0.1",
        }
        if self._peer.redis:
            self._redis = Redis()
            self._stack.enter_context(self._redis)
            environ["REDIS_URL"] = self._redis.url
        words = [str(self._program), str(Path(__file__).parent / self._peer.spider)]
        null = subprocess.DEVNULL
        with open(self._folder / "log.txt", "wb") as log:
            for worker in range(self._peer.processes):
                environ["WORKER"] = str(worker)
                self._roots.append(
                    subprocess.Popen(words, cwd=self._folder, env=environ, stdin=null, stdout=log, stderr=log)
                )

    def close(self) -> None:
        """Kill those that run still."""
        for root in self._roots:
            root.kill()
            root.wait()
        self._stack.close()

    def stop(self) -> None:
        """Let them end."""
        end = time.monotonic() + _END
        for ask in (False, True):
            for root in self._roots:
                if ask and root.poll() is None:
                    root.terminate()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    root.wait(max(0.1, end - time.monotonic()))
            end = time.monotonic() + _END

    @property
    def runs(self) -> bool:
        """Some process has not ended: peers end by themselves when all is crawled."""
        return None in [root.poll() for root in self._roots]

    def pids(self) -> list[int]:
        """All its processes."""
        return [pid for root in self._roots if root.poll() is None for pid in processes.tree(root.pid)]

    def used(self) -> float:
        """Seconds of CPU of all its processes, those that ended included."""
        pids = self.pids()
        return sum(map(processes.used, pids)) + _of_ended() - self._ended

    def server_cpu(self) -> dict[str, float]:
        """Of its Redis."""
        if self._redis is None or self._redis.process is None:
            return {}
        return {self._redis.name: processes.cpu(self._redis.process.pid)}

    def count(self) -> int:
        """Lines that can be read."""
        for file in self._folder.glob("out*.jsonl"):
            offset, lines = self._read.get(file, (0, 0))
            with file.open("rb") as stream:
                stream.seek(offset)
                data = stream.read()
            self._read[file] = offset + len(data), lines + data.count(b"\n")
        return sum(lines for _, lines in self._read.values())

    def rows(self) -> list[tuple[str, str]]:
        """URL and title of each line."""
        lines = [line for file in self._folder.glob("out*.jsonl") for line in file.read_text().splitlines()]
        return [(row["url"], row["title"] or "") for row in map(json.loads, lines)]


def _of_ended() -> float:
    """Seconds of CPU of the children that we waited for."""
    return sum(resource.getrusage(resource.RUSAGE_CHILDREN)[:2])
