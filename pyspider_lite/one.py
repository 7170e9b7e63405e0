"""`one`: all roles on threads of this process, until the projects of some script files are finished (behaviour C95).

The same roles as everywhere, on queues in memory and a taskdb in a temporary folder. Called by the command line.
"""

import contextlib
import logging
import re
import sys
import tempfile
import threading
from collections.abc import Iterator, Sequence

import msgspec

from pyspider_lite import assembly, bootstrap, error_kinds, exit_codes, settings
from pyspider_lite.database.base import TaskDB
from pyspider_lite.database.script_files import ScriptFiles
from pyspider_lite.log import printable
from pyspider_lite.models.names import Role
from pyspider_lite.models.task import Task, TaskStatus
from pyspider_lite.scheduler.scheduler import Scheduler
from pyspider_lite.settings import Settings

logger = logging.getLogger(__name__)

#: seconds beyond the drain time that a role's thread may take to end
GRACE = 5.0


def run(options: Settings, scripts: Sequence[str]) -> int:
    """Crawl until nothing is left to do: the exit code."""
    with contextlib.ExitStack() as stack:
        prints = options.resultdb == settings.default_database("resultdb", options.data_path)
        options = _on_threads(options, stack.enter_context(tempfile.TemporaryDirectory(prefix="pyspider_lite-")))
        taskdb = stack.enter_context(contextlib.closing(assembly.connect_taskdb(options)))
        names = _enter_on_start(taskdb, scripts)
        over = threading.Event()
        received = stack.enter_context(bootstrap.stop_on_signals(over.set))
        unanswered: set[str] = set()
        built = assembly.Assembly(options, stack, scripts=scripts, prints=prints)

        def idle(scheduler: Scheduler) -> None:
            unanswered.update(scheduler.unanswered)
            over.set()

        built.on_idle = idle
        _crawl(built, options, over)
        if received:
            return exit_codes.of_signal(received[0])
        code = exit_codes.DONE
        for task in _failed(taskdb, names):
            if task.project in unanswered and task.taskid == "on_finished":
                continue  # it fails like its on_start
            unloadable = task.project in unanswered and task.taskid == "on_start"
            code = max(code, exit_codes.BAD_CONFIG if unloadable else exit_codes.TASKS_FAILED)
            print(printable(f"failed: {task.project}: {task.url}: {_reason(task)}{_place(task)}"), file=sys.stderr)
        return code


def _on_threads(options: Settings, folder: str) -> Settings:
    """The settings with queues in memory, and databases in ``folder`` where the user named none."""
    chosen = {
        kind: settings.default_database(kind, folder)
        for kind in ("taskdb", "resultdb")
        if getattr(options, kind) == settings.default_database(kind, options.data_path)
    }
    return msgspec.structs.replace(options, message_queue=f"memory://{folder}", **chosen)


def _enter_on_start(taskdb: TaskDB, scripts: Sequence[str]) -> list[str]:
    projectdb = ScriptFiles(scripts)
    names = []
    for head in projectdb.heads():
        project = projectdb.get(head.name)
        if project is not None:
            bootstrap.enter_on_start(taskdb, project)
            names.append(project.name)
    return names


def _crawl(built: assembly.Assembly, options: Settings, over: threading.Event) -> None:
    """All roles, until ``over``."""
    parts = {role: built.build(role) for role in Role}
    threads = {
        role: threading.Thread(target=_run, args=(role, part, over), name=str(role), daemon=True)
        for role, part in parts.items()
    }
    for thread in threads.values():
        thread.start()
    over.wait()
    # nothing is in hand, or the user does not want to wait: they need not stop one after the other
    for part in parts.values():
        part.role.stop()
    for thread in threads.values():
        thread.join(options.drain_timeout + GRACE)


def _run(role: Role, part: assembly.Part, over: threading.Event) -> None:
    try:
        bootstrap.run_part(part)
    except Exception:
        logger.exception("the %s broke down", role)
    finally:
        over.set()


def _failed(taskdb: TaskDB, names: Sequence[str]) -> Iterator[Task]:
    for name in names:
        after = None
        while rows := taskdb.select(name, status=TaskStatus.FAILED, limit=1000, after=after):
            yield from rows
            after = rows[-1].seq


def _place(task: Task) -> str:
    """The line of the script that it failed at, the innermost one; "" if that is not known."""
    logs = str((task.track.get("process") or {}).get("logs") or "")
    places = re.findall(rf'File "<{re.escape(task.project)}>", (line \d+(?:, in \w+)?)', logs)
    return f" ({places[-1]})" if places else ""


def _reason(task: Task) -> str:
    """Why it failed: what the callback raised, else what the fetch met."""
    process, fetch = task.track.get("process") or {}, task.track.get("fetch") or {}
    if said := error_kinds.said(process):
        return said
    if fetch.get("error"):
        return str(fetch["error"])
    logs = str(process.get("logs") or "").strip()
    return logs.splitlines()[-1] if logs else f"status {fetch.get('status_code', 'unknown')}"
