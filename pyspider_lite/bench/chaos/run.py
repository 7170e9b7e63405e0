"""One run of chaos: a crawl, its harms, and the four files that `check` judges. Called by the command line and by tests."""

import contextlib
import hashlib
import heapq
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pyspider_lite.bench import processes
from pyspider_lite.bench.chaos import harms
from pyspider_lite.bench.chaos.harms import Harm, Kind
from pyspider_lite.bench.chaos.manager import Manager, Slot
from pyspider_lite.bench.chaos.pages import Pages
from pyspider_lite.bench.chaos.stack import DRAIN, PROJECT, Done, Stack

ROLES = ("scheduler", "fetcher", "processor", "result_worker")
#: how a daemon is started; tests put a launcher of their own in its place
PROGRAM = (sys.executable, "-m", "pyspider_lite")
#: seconds to wait for a victim to have something in hand
_AIM = 2.0
#: seconds by which a harm may be late
_LATE = 3.0
#: seconds in which all must be gone after SIGTERM
_GONE = DRAIN + 5.0 + 5.0
_SCRIPT = """
import time

from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    retry_delay = {"": 1}

    def on_start(self):
        self.crawl("START", callback=self.page, retries=20)

    @config(age=10 * 24 * 60 * 60)
    def page(self, response):
        number = int(response.url.rpartition("/")[2].partition(".")[0])
        time.sleep(0.02 + number % 5 * 0.01)
        for each in response.doc('a[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.page, retries=20)
        return {"page": number, "title": response.doc("title").text()}
"""


class Options(NamedTuple):
    """Of a run."""

    folder: Path
    seed: int = 1
    minutes: float = 2.0
    stack: str = "builtin-sqlite"
    pages: int = 3500
    #: None: made from the seed
    harms: Sequence[Harm] | None = None
    #: seconds without a request, after the last harm, that end the run
    patience: float = 60.0
    program: Sequence[str] = PROGRAM


def run(options: Options) -> None:
    """Leaves harms.jsonl, access.log, results.jsonl and tasks.jsonl in the folder, and the logs of all daemons."""
    options.folder.mkdir(parents=True, exist_ok=True)
    with contextlib.ExitStack() as stack:
        log = stack.enter_context(open(options.folder / "harms.jsonl", "w", buffering=1))
        site = stack.enter_context(Pages(options.pages, options.folder / "access.log"))
        servers = stack.enter_context(Stack(options.stack, options.folder))
        done = Done(servers.settings)
        done.start()
        stack.callback(done.stop)
        one = _Run(options, site, servers, done, _Notes(log.write))
        stack.callback(one.manager.kill)
        one.crawl()
        one.end()


class _Notes:
    """Writes events down as lines of JSON; from any thread."""

    def __init__(self, write: Callable[[str], object]) -> None:
        self._write = write
        self._lock = threading.Lock()

    def __call__(self, event: str, **fields: Any) -> None:
        with self._lock:
            self._write(json.dumps({"event": event, "time": round(time.time(), 4), **fields}) + "\n")


class _Run:
    def __init__(self, options: Options, site: Pages, stack: Stack, done: Done, note: _Notes) -> None:
        self._options = options
        self._site = site
        self._stack = stack
        self._done = done
        self._note = note
        self._paths = {hashlib.md5(site.url(number).encode()).hexdigest(): number for number in range(options.pages)}
        self._taskids = {f"/{number}.html": taskid for taskid, number in self._paths.items()}
        self._numbers = iter(range(1, 1_000_000))
        self._under_way: list[threading.Thread] = []
        self._servers = {"broker": threading.Lock(), "database": threading.Lock()}
        slots = [self._slot(role, index) for role in ROLES for index in range(harms.COUNT)]
        self.manager = Manager(options.folder, slots, note)

    def _slot(self, role: str, index: int) -> Slot:
        words = [*self._options.program, "-c", str(self._stack.config), role]
        if role == "fetcher":
            words += ["--user-agent", f"fetcher[{index}]"]  # so that the site knows who asks
        return Slot(role, index, words, self._options.folder / f"{role}-{index}.log")

    # --- the crawl ------------------------------------------------------------------------------------------------------

    def crawl(self) -> None:
        """From the start to the last page, or until nothing happens any more."""
        options = self._options
        seconds = options.minutes * 60
        self._note(
            "begin",
            seed=options.seed,
            minutes=options.minutes,
            stack=options.stack,
            pages=options.pages,
            pid=os.getpid(),
        )
        self.manager.start()
        file = options.folder / f"{PROJECT}.py"
        file.write_text(_SCRIPT.replace("START", self._site.url(0)))
        # as fast as that the crawl lasts as long as the harms
        self._command("project", "push", str(file), "--name", PROJECT, "--rate", f"{options.pages / seconds:.2f}")
        self._command("project", "run", PROJECT)
        self._wait(lambda: bool(self._site.requests), 60)
        planned = options.harms
        self._harm(harms.plan(options.seed, seconds, self._stack.abilities) if planned is None else planned)
        self._note("calm")
        self._command("project", "set", PROJECT, "--rate", "unlimited")
        self._wait(self._complete, options.patience)

    def end(self) -> None:
        """Stop all, and write down what there is."""
        self._note("stop")
        left = self.manager.stop(_GONE)
        _write(self._options.folder / "results.jsonl", self._stack.results())
        _write(self._options.folder / "tasks.jsonl", self._stack.tasks())
        self._note("end", left=left)

    def _command(self, *words: str) -> None:
        command = [*PROGRAM, "-c", str(self._stack.config), *words]
        subprocess.run(command, check=True, cwd=self._options.folder, capture_output=True, timeout=60)

    def _wait(self, condition: Callable[[], bool], standstill: float) -> None:
        """Until it holds, or for so long no other page came."""
        seen, changed = 0, time.monotonic()
        while not condition() and time.monotonic() - changed < standstill:
            if len(self._site.requests) != seen:
                seen, changed = len(self._site.requests), time.monotonic()
            time.sleep(0.2)

    def _complete(self) -> bool:
        """Every page was asked for and is done."""
        return len(self._asked()) == self._options.pages and not self._pages_in_hand()

    def _asked(self) -> set[str]:
        """The tasks of the pages that were asked for."""
        return {self._taskids.get(request.path, "") for request in list(self._site.requests)} - {""}

    # --- harms ----------------------------------------------------------------------------------------------------------

    def _harm(self, plan: Iterable[Harm]) -> None:
        began = time.monotonic()
        endings: list[tuple[float, int, Callable[[], None]]] = []
        for harm in plan:
            # on a slow machine all comes later, with the same calm between
            began = max(began, time.monotonic() - harm.at - _LATE)
            self._until(began + harm.at, endings)
            if self._complete():
                break
            self._do(harm, endings)
        if endings:
            self._until(max(endings)[0], endings)
        for thread in self._under_way:
            thread.join(120)

    def _until(self, moment: float, endings: list[tuple[float, int, Callable[[], None]]]) -> None:
        """Wait, at most, until this moment, and end what is to be ended meanwhile: also if we are late."""
        while endings and endings[0][0] <= max(moment, time.monotonic()):
            time.sleep(max(0.0, endings[0][0] - time.monotonic()))
            heapq.heappop(endings)[2]()
        time.sleep(max(0.0, moment - time.monotonic()))

    def _do(self, harm: Harm, endings: list[tuple[float, int, Callable[[], None]]]) -> None:
        number = next(self._numbers)
        if harm.target in self._servers:
            # a server may take long to stop and to start
            thread = threading.Thread(target=self._harm_server, args=(harm, number), name=harm.target, daemon=True)
            thread.start()
            self._under_way.append(thread)
            return
        slot, in_hand = self._aim(harm.role.replace("child", "processor"), harm.number)
        child = harm.role == "child" and slot.role == "processor"
        pid = slot.pid
        victim = next(reversed(processes.tree(pid)[1:]), 0) if child and pid else pid
        if not victim:
            self._note("missed", harm=number, role=harm.target)
            return
        number_of = {Kind.KILL: signal.SIGKILL, Kind.FREEZE: signal.SIGSTOP, Kind.TERM: signal.SIGTERM}[harm.kind]
        if harm.kind is not Kind.TERM and not child:
            slot.send(signal.SIGSTOP)  # so that what is seen now is what it has
        harm = harm._replace(target=f"child[{slot.index}]" if child else slot.name)
        self._note_harm(number, harm, victim, number_of.name, in_hand, self._pages_in_hand())
        if child:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, number_of)
        else:
            slot.send(number_of)
        if harm.kind is Kind.FREEZE:

            def thaw() -> None:
                self._note("over", harm=number, pages=self._pages_in_hand())
                if slot.pid == pid:
                    slot.send(signal.SIGCONT)

            heapq.heappush(endings, (time.monotonic() + harm.seconds, number, thaw))

    def _aim(self, role: str, number: int) -> tuple[Slot, int]:
        """A process of the role that has work in hand, if there is one soon, else another that has some, else one that is up; and how
        much it has. On a slow machine nothing would come up if it were killed before."""
        slots = list(self.manager.slots.values())
        chosen = self.manager.slots[f"{role}[{number}]"]
        first = [chosen, *(slot for slot in slots if slot.role == role and slot is not chosen)]
        others = [slot for slot in slots if slot.role not in (role, "scheduler")]
        end = time.monotonic() + _AIM
        while True:
            up = {slot: found for slot in first if (found := _in_hand(slot)) is not None}
            if role == "scheduler" and chosen in up:
                return chosen, up[chosen]  # as often one that leads as one that stands by
            busy = next((slot for slot in up if up[slot]), None)
            if busy is not None:
                return busy, up[busy]
            if time.monotonic() > end:
                up |= {slot: found for slot in others if (found := _in_hand(slot)) is not None}
                return max(up.items(), key=lambda item: item[1] > 0, default=(chosen, 0))
            time.sleep(0.05)

    def _harm_server(self, harm: Harm, number: int) -> None:
        if not self._servers[harm.target].acquire(blocking=False):
            self._note("missed", harm=number, role=harm.target)  # it is still coming back from the harm before
            return
        try:
            pages = self._pages_in_hand()
            name = {Kind.STOP: "SIGTERM", Kind.KILL: "SIGKILL", Kind.FREEZE: "SIGSTOP"}.get(harm.kind, "")
            self._note_harm(number, harm, self._stack.pid(harm.target), name, len(pages), pages)
            ending = self._stack.begin(harm)
            if ending is not None:
                time.sleep(harm.seconds)
                ending()
            self._note("over", harm=number, pages=self._pages_in_hand())
        except Exception as error:
            self._note("error", harm=number, error=f"{type(error).__name__}: {error}")
        finally:
            self._servers[harm.target].release()

    def _note_harm(self, number: int, harm: Harm, pid: int, name: str, in_hand: int, pages: list[int]) -> None:
        fields = {"kind": harm.kind, "pid": pid, "role": harm.target, "signal": name, "seconds": round(harm.seconds, 1)}
        self._note("harm", harm=number, **fields, in_hand=in_hand, pages=pages)

    def _pages_in_hand(self) -> list[int]:
        """The pages that were asked for and are not done. Who has which of them cannot be seen from outside."""
        return sorted(self._paths[taskid] for taskid in self._done.open_of(self._asked()))


def _in_hand(slot: Slot) -> int | None:
    """By its own metrics; None while it is not up. Of a scheduler that stands by, nothing."""
    numbers = slot.metrics()
    return int(numbers.get('in_flight{kind="task"}', numbers.get("in_hand", 0))) if numbers else None


def _write(file: Path, rows: Iterable[dict[str, Any]]) -> None:
    with open(file, "w") as out:
        for row in rows:
            print(json.dumps(row, ensure_ascii=False), file=out)
