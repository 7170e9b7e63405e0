"""What others may ask of a running scheduler (behaviour S85 to S93): the functions of its XML-RPC port.

Called on the server's threads. The scheduler's state belongs to its loop, so each of them posts a command to the loop's inbox
and waits for the answer. A stand-by answers with the address of the one that leads. `assembly` registers them.
"""

import heapq
import logging
import socket
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import closing
from secrets import token_hex
from typing import Any, Protocol, TypeVar
from urllib.parse import urlsplit
from xmlrpc.client import Fault

import msgspec

from pyspider_lite import codec, outages
from pyspider_lite.counters import WINDOWS
from pyspider_lite.database.base import TaskDB
from pyspider_lite.errors import DatabaseError
from pyspider_lite.models.task import NewTask
from pyspider_lite.rpc import FAULT
from pyspider_lite.rpc.address import is_loopback
from pyspider_lite.scheduler import checkup, rules
from pyspider_lite.scheduler.inbox import Inbox
from pyspider_lite.scheduler.scheduler import Scheduler
from pyspider_lite.scheduler.task_orders import MAX_TASKS, TaskOrder

logger = logging.getLogger("scheduler")

T = TypeVar("T")

#: seconds to wait for the loop's answer
DEADLINE = 5.0


class Daemon(Protocol):
    """The process around the scheduler, as seen from here."""

    @property
    def inbox(self) -> Inbox | None:
        """Of the scheduler while it leads, None while another one does."""
        ...

    def stop(self) -> None: ...


class Remote:
    """The functions; what cannot be answered is a Fault with one sentence."""

    def __init__(self, daemon: Daemon, taskdb: Callable[[], TaskDB], deadline: float = DEADLINE) -> None:
        """``taskdb`` gives a connection for one question, who leads."""
        self._daemon = daemon
        self._taskdb = taskdb
        self._deadline = deadline

    def functions(self) -> dict[str, Callable[..., Any]]:
        """By the names under which pyspider has them."""
        return {
            "_quit": self._daemon.stop,
            "size": self.size,
            "counter": self.counter,
            "newtask": self.newtask,
            "send_task": self.send_task,
            "update_project": self.update_project,
            "get_active_tasks": self.get_active_tasks,
            "get_projects_pause_status": self.get_projects_pause_status,
            "webui_update": self.webui_update,
            "explain": self.explain,
            "order_tasks": self.order_tasks,
            "checkup": self.checkup,
            "waiting": outages.waiting,
            "strangers": self.strangers,
            "look_again": self.look_again,
        }

    # --- questions ------------------------------------------------------------------------------------------------------

    def size(self) -> int:
        """How many tasks wait or run, of all projects (S86)."""
        return self._ask(lambda scheduler: sum(project.counts.active for project in scheduler.projects.values()))

    def counter(self, time: str, type: str) -> dict[str, dict[str, float]]:
        """{project: {name: number}} in the window 5m_time, 5m, 1h, 1d or all, as sum or avg (S87). In ``all``, pending, success and
        failed are how many tasks there are, whatever was restarted since they were entered (S66)."""
        if type not in ("sum", "avg"):
            raise Fault(FAULT, f"counter: type must be sum or avg, not {type!r:.60}")
        if time not in WINDOWS:
            raise Fault(FAULT, f"counter: time must be 5m_time, 5m, 1h, 1d or all, not {time!r:.60}")
        return self._ask(lambda scheduler: _counted(scheduler, time, average=type == "avg"))

    def get_active_tasks(self, project: str | None = None, limit: int = 100) -> list[tuple[float, dict[str, Any]]]:
        """Time and task of the runs that ended last, newest first (S91); of all projects if none is named."""
        if not isinstance(limit, int) or not (project is None or isinstance(project, str)):
            raise Fault(FAULT, "get_active_tasks: expected the name of a project or nil, and a whole number")

        def newest(scheduler: Scheduler) -> list[tuple[float, dict[str, Any]]]:
            runs = [run for name, one in scheduler.projects.items() if project in (None, name) for run in one.log]
            return heapq.nlargest(limit, runs, key=lambda run: run[0])

        return self._ask(newest)

    def get_projects_pause_status(self) -> dict[str, bool]:
        """Which projects are paused because everything failed (S92)."""
        return self._ask(_pause_status)

    def webui_update(self) -> dict[str, Any]:
        """What a page with all projects shows (S93)."""
        windows = ("5m_time", "5m", "1h", "1d", "all")

        def update(scheduler: Scheduler) -> dict[str, Any]:
            counters = {window: _counted(scheduler, window) for window in windows}
            return {"pause_status": _pause_status(scheduler), "counter": counters}

        return self._ask(update)

    def explain(self, project: str, taskid: str) -> dict[str, Any]:
        """What only a running scheduler knows of a task, for the command `explain`: whether it is in flight, why its last submission
        was dropped, what holds its project up, how many submissions of the project were dropped for each reason."""
        if not isinstance(project, str) or not isinstance(taskid, str):
            raise Fault(FAULT, "explain: expected the names of a project and of a task")
        return self._ask(lambda scheduler: _explain(scheduler, project, taskid))

    def checkup(self) -> dict[str, dict[str, Any]]:
        """What only a running scheduler knows of its projects, for the command `doctor`."""
        return self._ask(checkup.projects)

    def strangers(self, project: str, taskids: list[str]) -> list[str]:
        """Those of these due tasks that the scheduler would not find, likewise."""
        if not isinstance(project, str) or not isinstance(taskids, list):
            raise Fault(FAULT, "strangers: expected the name of a project and a list of tasks")
        return self._ask(lambda scheduler: checkup.strangers(scheduler, project, taskids))

    # --- orders ---------------------------------------------------------------------------------------------------------

    def update_project(self) -> None:
        """Look at the projectdb at once, not only within a second (S90). Not waited for."""
        self._inbox().command(lambda scheduler: scheduler.update_projects())

    def look_again(self, project: str) -> bool:
        """Read the project's rows again, which were changed behind the scheduler's back; False if there is no such project."""
        return self._ask(lambda scheduler: scheduler.look_again(project))

    def newtask(self, task: dict[str, Any]) -> bool:
        """Submit a task (S88). The answer comes after its commit: True if the task is in the taskdb, new or known; False if it is
        no task, or its project is unknown or not started (S14)."""
        new = _read(task)
        if new is None or not (self._submit(new) or (self._works_on(new.project) and self._submit(new))):
            return False
        return self._ask(lambda scheduler: scheduler.get_task(new.project, new.taskid) is not None)

    def _submit(self, new: NewTask) -> bool:
        """False if nobody works on its project; else it is committed. Asked in one command: two would be two steps, which gather for
        20 ms."""
        committed: Future[bool] = Future()

        def command(scheduler: Scheduler) -> None:
            if _is_active(scheduler, new.project):
                scheduler.submit([new], lambda plan: _resolve(committed, True))
            else:
                _resolve(committed, False)

        self._inbox().command(command)
        return self._wait(committed)

    def send_task(self, task: dict[str, Any]) -> bool:
        """Have a task fetched and processed now, stored or not, whatever its schedule says (S89). Its state changes only if it is
        stored and was to be run. A message (as `send_message` makes it) is stored, and delivered once."""
        new = _read(task)
        if new is None:
            raise Fault(FAULT, "send_task: a task has taskid, project and url")
        if not self._works_on(new.project):
            raise _not_started(new.project)
        if new.process.get("callback") == "_on_message":
            committed: Future[None] = Future()
            token = f"{new.project}:{token_hex(8)}"
            self._ask(
                lambda one: _if_started(one, new).send_message(new, token, lambda plan: _resolve(committed, None))
            )
            self._wait(committed)
            return True
        if not self._ask(lambda scheduler: _if_started(scheduler, new).send_now(new)):
            raise Fault(FAULT, "send_task: the fetchers' queue is full, try again later")
        return True

    def order_tasks(self, project: str, action: str, tasks: str, priority: int = 0) -> dict[str, int]:
        """Have stored tasks run again (``retry``), cancelled (``cancel``) or given a ``priority``, in one transaction, for the command
        `task`. ``tasks`` is JSON, {taskid: run number that was seen}, for ids may hold what XML cannot. How many came to what, after
        the commit."""
        order = _read_order(project, action, tasks, priority)
        if not self._ask(lambda scheduler: project in scheduler.projects):
            # so new that only the projectdb knows; the next question is heard in a later step
            self._ask(lambda scheduler: scheduler.update_projects())
            if not self._ask(lambda scheduler: project in scheduler.projects):
                raise Fault(FAULT, f"order_tasks: there is no project {project}")
        committed: Future[None] = Future()
        self._inbox().command(lambda scheduler: scheduler.order(order, lambda plan: _resolve(committed, None)))
        self._wait(committed)
        return {str(word): count for word, count in order.outcomes.items()}

    def _works_on(self, name: str) -> bool:
        """The project is active; asked twice, because it may be so new that only the projectdb knows."""
        if self._ask(lambda scheduler: _is_active(scheduler, name)):
            return True
        # answered before the step looks at the projectdb; the next question is heard in a later step
        self._ask(lambda scheduler: scheduler.update_projects())
        if self._ask(lambda scheduler: _is_active(scheduler, name)):
            return True
        if self._ask(lambda scheduler: name in scheduler.projects):
            logger.error("project %s not started, please set status to RUNNING or DEBUG", name)
        else:
            logger.error("unknown project: %s", name)
        return False

    # --- the way to the loop --------------------------------------------------------------------------------------------

    def _inbox(self) -> Inbox:
        inbox = self._daemon.inbox
        if inbox is None:
            raise Fault(FAULT, f"this scheduler does not lead now; {self._who_leads()}")
        return inbox

    def _who_leads(self) -> str:
        try:
            with closing(self._taskdb()) as taskdb:
                leader = taskdb.leader()
                if leader is None or leader.until < taskdb.time():
                    return "none does, try again"
        except DatabaseError as error:
            return f"who does cannot be asked: {error}"
        host = leader.holder.partition(":")[0]
        if not leader.rpc:
            return f"the one that does runs without XML-RPC ({leader.holder})"
        if is_loopback(urlsplit(leader.rpc).hostname or "") and host != socket.gethostname():
            return f"the one that does listens on its own machine, {host}, only ({leader.holder})"
        return f"the one that does is at {leader.rpc} ({leader.holder})"

    def _ask(self, question: Callable[[Scheduler], T]) -> T:
        """What ``question`` returns or raises in the scheduler's loop."""
        answer: Future[T] = Future()

        def command(scheduler: Scheduler) -> None:
            try:
                _resolve(answer, question(scheduler))
            except Exception as error:  # the asker's, not the loop's
                answer.set_exception(error)

        self._inbox().command(command)
        return self._wait(answer)

    def _wait(self, answer: "Future[T]") -> T:
        try:
            return answer.result(self._deadline)
        except TimeoutError:
            raise Fault(
                FAULT, f"the scheduler did not answer within {self._deadline:g} s; it may still do it"
            ) from None
        except DatabaseError as error:
            raise Fault(FAULT, str(error)) from None


def _resolve(future: "Future[T]", value: T) -> None:
    # a batch that is cut up may say so twice
    if not future.done():
        future.set_result(value)


def _is_active(scheduler: Scheduler, name: str) -> bool:
    project = scheduler.projects.get(name)
    return project is not None and project.active


def _if_started(scheduler: Scheduler, task: NewTask) -> Scheduler:
    """The project may have been stopped or deleted since it was asked for. Raises Fault."""
    if not _is_active(scheduler, task.project):
        raise _not_started(task.project)
    return scheduler


def _not_started(name: str) -> Fault:
    return Fault(FAULT, f"send_task: the project {name} is unknown or not started")


def _counted(scheduler: Scheduler, window: str, average: bool | None = None) -> dict[str, dict[str, float]]:
    """The counters of a window; of tasks there are as many as the taskdb says (S19, S41, S66)."""
    counted = scheduler.counters.get(scheduler.now, window, average=average)
    if window == "all":
        for name, project in scheduler.projects.items():
            stored = project.counts
            tasks = {"pending": stored.active, "success": stored.success, "failed": stored.failed}
            events = {event: count for event, count in counted.pop(name, {}).items() if event not in tasks}
            if both := {**{status: count for status, count in tasks.items() if count}, **events}:
                counted[name] = both
    return counted


def _pause_status(scheduler: Scheduler) -> dict[str, bool]:
    return {name: project.pause.paused(scheduler.now) for name, project in scheduler.projects.items()}


def _explain(scheduler: Scheduler, name: str, taskid: str) -> dict[str, Any]:
    project = scheduler.projects.get(name)
    if project is None:
        return {"known": False}
    drop = project.drops.get(taskid)
    now = scheduler.now
    events = scheduler.counters.get(now, "all").get(name, {})
    return {
        "known": True,
        "asked": project.info is not None,
        "in_flight": scheduler.leases.run_of(name, taskid) is not None,
        "drop": drop and msgspec.to_builtins(drop),
        "held_until": scheduler.held_until(name, taskid),
        "alone": scheduler.alone and msgspec.to_builtins(scheduler.alone),
        "dropped": {
            event.removeprefix("dropped-"): count for event, count in events.items() if event.startswith("dropped-")
        },
    }


def _read_order(project: Any, action: Any, tasks: Any, priority: Any) -> TaskOrder:
    try:
        order = msgspec.convert(
            {
                "project": project,
                "action": action,
                "tasks": msgspec.json.decode(tasks, type=dict[str, int]),
                "priority": priority,
            },
            TaskOrder,
        )
    except (msgspec.MsgspecError, TypeError) as error:
        raise Fault(FAULT, f"order_tasks: {error}") from None
    if len(order.tasks) > MAX_TASKS or abs(order.priority) > rules.MAX_PRIORITY:
        raise Fault(FAULT, f"order_tasks: at most {MAX_TASKS} tasks, and priorities up to {rules.MAX_PRIORITY}")
    return order


def _read(task: Any) -> NewTask | None:
    """The submission, None if it is none (S5). Raises Fault for one that could never be given out."""
    try:
        new = msgspec.convert(task, NewTask)
        reason = rules.is_no_submission(new)
    except msgspec.ValidationError as error:
        reason = str(error)
    if reason is None:
        if (refusal := codec.refusal(new)) is not None:
            raise Fault(FAULT, f"the task cannot be taken: {refusal}")
        return new
    logger.warning("rpc: this is no task: %s", reason)
    return None
