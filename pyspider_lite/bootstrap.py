"""Runs what `assembly` builds: a daemon with its signals and its RPC port, or the databases for the length of a command.

Called by the command line. What a daemon cannot start with is raised as ConfigError or RefusedToStart before it says that it is ready.
"""

import contextlib
import gc
import logging
import os
import secrets
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any
from urllib.parse import urlsplit

from pyspider_lite import assembly, exit_codes, log, message_queue, settings, stop_signals
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import ConfigError, PyspiderLiteError, RefusedToStart
from pyspider_lite.health import HealthServer, open_port
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.project import Project
from pyspider_lite.models.task import NewTask
from pyspider_lite.rpc import RpcServer, client
from pyspider_lite.rpc.address import is_loopback
from pyspider_lite.settings import Settings

logger = logging.getLogger(__name__)

#: seconds beyond drain-timeout within which a daemon is gone after SIGTERM, whatever it waits for
STOP_GRACE = 5.0
#: seconds that threads of users have when all else is over
_LAST_MOMENT = 1.0
#: objects made, beyond those that ended, before the youngest are looked through
_GC_THRESHOLD = 50_000

# --- running ------------------------------------------------------------------------------------------------------------


def run_role(
    role: Role,
    options: Settings,
    *,
    index: int = 0,
    on_ready: Callable[[Callable[[], None] | None], None] | None = None,
) -> int:
    """Build and run one daemon until a signal ends it: the exit code. ``index`` counts daemons of one role on this machine:
    their ports follow each other. ``on_ready`` gets what is to be called when all is about to stop, if there is such a thing."""
    if options.add_sys_path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # behaviour C5
    make_data_path(options)
    with contextlib.ExitStack() as stack:
        rpc = _rpc_server(role, options, index)
        if rpc is not None:
            stack.callback(rpc.stop)
        health = _health_server(options, stack)
        builder = assembly.Assembly(
            options, stack, rpc_url=rpc.url if rpc else "", health_url=health.url if health else ""
        )
        try:
            part = builder.build(role)
        except SystemExit as error:
            raise ConfigError(f"{role}: a class of yours called sys.exit({error.code!r}) when it was made") from error
        received = stack.enter_context(stop_on_signals(part.role.stop, options.drain_timeout + STOP_GRACE))
        if rpc is not None:
            rpc.serve(part.rpc_functions)
        if health is not None:
            health.serve(part.subject(role, lambda: bool(received)))
            logger.info("health, readiness and metrics: %s", health.url)
        logger.info("%s starting, pid %d", role, os.getpid())
        if on_ready is not None:
            on_ready(part.hold)
        _spare_collections()
        run_part(part)
        logger.info("%s exiting", role)
        return exit_codes.of_signal(received[0]) if received else exit_codes.DONE


def _spare_collections() -> None:
    """A role decodes thousands of objects a second that die with their batch, without cycles; what is loaded by now stays to the end.
    Python's collector would look through all of it again and again (a tenth of the scheduler's CPU time)."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_GC_THRESHOLD, 20, 100)


def run_part(part: assembly.Part) -> None:
    """Run a role until it is stopped, with its heartbeat around it."""
    if part.heartbeat is not None:
        part.heartbeat.start()
    part.role.run()
    if part.heartbeat is not None:
        # nothing is left to be said to a broker that is away
        away = part.heartbeat.waiting_since is not None and not part.heartbeat.load
        part.heartbeat.stop(timeout=0.5 if away else 5.0)


@contextlib.contextmanager
def stop_on_signals(stop: Callable[[], None], limit: float = 0.0) -> Iterator[list[int]]:
    """Those of `stop_signals` call ``stop``; the second one ends the process at once, and so do ``limit`` seconds after the first one
    (0: none), for a server that does not answer may hold up any thread: also after the block, until the process is gone. Gives the list
    of signals received."""
    received: list[int] = []

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            os._exit(exit_codes.of_signal(number))
        signal.setitimer(signal.ITIMER_REAL, limit)
        stop()

    def overdue(number: int, frame: FrameType | None) -> None:
        os.write(2, b"not over at the end of drain-timeout: ending at once\n")
        os._exit(exit_codes.of_signal(received[0]))

    handlers = dict.fromkeys(stop_signals.heard(), handle) | ({signal.SIGALRM: overdue} if limit else {})
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield received
    finally:
        if not (received and limit):
            for number, former in before.items():
                signal.signal(number, former)


def leave_threads(code: int) -> int:
    """The exit code of a daemon that is over, if nothing keeps its process. Threads that a user's code has started would, for ever: who is
    not over in a moment ends with the process."""
    end = time.monotonic() + _LAST_MOMENT
    others = [thread for thread in threading.enumerate() if not thread.daemon and thread is not threading.main_thread()]
    for thread in others:
        thread.join(max(0.0, end - time.monotonic()))
    if names := [thread.name for thread in others if thread.is_alive()]:
        logger.warning("threads that are none of ours do not end; ending with them: %s", ", ".join(names))
        logging.shutdown()
        os._exit(code)
    return code


def set_up_logging(options: Settings) -> None:
    """As the settings say."""
    log.setup(options.logging_config, debug=options.debug)


def make_data_path(options: Settings) -> None:
    """Create the folder for files (behaviour C22); raises RefusedToStart if that cannot be."""
    try:
        os.makedirs(options.data_path, exist_ok=True)
    except OSError as error:
        raise RefusedToStart(f"data-path {options.data_path} cannot be created: {error.strerror}") from error


def check_queue(options: Settings, *, served: bool = False) -> None:
    """A daemon needs queues that somebody serves (``served``: we do, unless a broker is named). Raises ConfigError for a URL
    that is of no use, RefusedToStart if no broker is named and no `all` runs here."""
    if options.message_queue.startswith("memory://"):
        raise ConfigError(
            f"message-queue {options.message_queue}: daemons are processes and do not share memory; "
            "leave it unset (then `all` serves the queues), or name a broker"
        )
    if options.message_queue:
        # connects when it is used, not now
        message_queue.connect(options.message_queue, QueueName.STATUS, prefix=options.queue_prefix).close()
    elif not served and not os.path.exists(settings.queue_socket(options.data_path)):
        raise RefusedToStart(
            f"message-queue is not set, and no `pyspider_lite all` serves the queues of data-path {options.data_path}: "
            "set message-queue to a broker, or start `all` first"
        )


def _health_server(options: Settings, stack: contextlib.ExitStack) -> HealthServer | None:
    """The port of /healthz, /readyz and /metrics, if one is wanted."""
    if options.health_port is None:
        return None
    server = open_port(options.health_host, options.health_port)
    if server is not None:
        stack.callback(server.stop)
    return server


def _rpc_server(role: Role, options: Settings, index: int) -> RpcServer | None:
    """The port of a role that has one. No trouble with it stops a worker: it is logged."""
    section: settings.Scheduler | settings.Fetcher
    if role == Role.SCHEDULER:
        section, default = options.scheduler, settings.SCHEDULER_PORT
    elif role == Role.FETCHER:
        section, default = options.fetcher, settings.FETCHER_PORT
    else:
        return None
    if section.no_xmlrpc:
        return None
    port = default if section.xmlrpc_port is None else section.xmlrpc_port
    # fetchers of one machine share a configuration: each begins at a port of its own
    port = port and min(port + index, 65535)
    # a scheduler can be spoken to at least on its own machine
    hosts = [section.xmlrpc_host] + (["127.0.0.1"] if role == Role.SCHEDULER else [])
    for host, instead in zip(hosts, [*hosts[1:], ""], strict=True):
        try:
            return RpcServer(host, port, secret=options.rpc_secret)
        except (ConfigError, RefusedToStart) as error:
            outcome = f"XML-RPC listens on {instead} instead" if instead else f"the {role} works without XML-RPC"
            logger.warning("%s; %s", error, outcome)
    return None


def scheduler_rpc(options: Settings) -> str:
    """URL of the XML-RPC of the scheduler that leads: as set, else as the taskdb has it (behaviour C94). Raises RefusedToStart if none
    leads, ConfigError if it cannot be reached from here."""
    if options.scheduler_rpc:
        return options.scheduler_rpc
    with open_taskdb(options) as taskdb:
        leader, now = taskdb.leader(), taskdb.time()
    if leader is None or leader.until < now:
        raise RefusedToStart("no scheduler leads now: start one, or set scheduler-rpc")
    if not leader.rpc:
        raise ConfigError(f"the scheduler that leads, {leader.holder}, runs without XML-RPC")
    host = leader.holder.partition(":")[0]
    if is_loopback(urlsplit(leader.rpc).hostname or "") and host != socket.gethostname():
        raise ConfigError(
            f"the scheduler that leads listens for XML-RPC on its own machine, {host}, only: "
            "run this there, or set xmlrpc-host and rpc-secret there"
        )
    return leader.rpc


def call_scheduler(options: Settings, url: str, method: str, *arguments: Any, timeout: float = 15.0) -> Any:
    """`client.call` of the scheduler at ``url``; if nobody answers at an address of this machine, the error says where one leads."""
    try:
        return client.call(url, options.rpc_secret, method, *arguments, timeout=timeout)
    except RefusedToStart as error:
        if not is_loopback(urlsplit(url).hostname or ""):
            raise
        raise RefusedToStart(f"{error}{_where_it_leads(options)}") from error


def _where_it_leads(options: Settings) -> str:
    """The end of a sentence, "" if it is not known."""
    try:
        with open_taskdb(options) as taskdb:
            leader, now = taskdb.leader(), taskdb.time()
    except PyspiderLiteError:
        return ""
    if leader is None or leader.until < now:
        return ""
    host = leader.holder.partition(":")[0]
    place = f", at {leader.rpc}" if leader.rpc else ", without XML-RPC"
    if host == socket.gethostname():
        return (
            f"; the scheduler leads on host {host}{place}; that is the name of this machine: if another one has it too, give each a name "
            "of its own (hostnamectl set-hostname NAME) and start its daemons again"
        )
    if leader.rpc and is_loopback(urlsplit(leader.rpc).hostname or ""):
        return (
            f"; the scheduler leads on host {host} and listens on its loopback only: run the command there, "
            "or set xmlrpc-host and rpc-secret there"
        )
    return f"; the scheduler leads on host {host}{place}"


# --- databases ----------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def open_taskdb(options: Settings, *, create: bool = False) -> Iterator[TaskDB]:
    """The taskdb for a block of code; without ``create`` a file that is missing raises ConfigError."""
    _look_for("taskdb", create, options)
    with contextlib.closing(assembly.connect_taskdb(options)) as found:
        yield found


@contextlib.contextmanager
def open_projectdb(options: Settings, *, create: bool = False) -> Iterator[ProjectDB]:
    """The projectdb likewise."""
    _look_for("projectdb", create, options)
    with contextlib.closing(assembly.connect_projectdb(options)) as found:
        yield found


@contextlib.contextmanager
def open_resultdb(options: Settings) -> Iterator[ResultDB]:
    """The resultdb likewise; it is read only here."""
    _look_for("resultdb", False, options)
    with contextlib.closing(assembly.connect_resultdb(options)) as found:
        yield found


def _look_for(kind: str, create: bool, options: Settings) -> None:
    """Only what writes creates a database file: a command in the wrong folder must not leave empty ones."""
    from pyspider_lite.database.url import parse

    url = getattr(options, kind)
    file = settings.sqlite_file(url)
    if file is None or os.path.exists(file):
        return
    parse(url, kind)  # if the URL is wrong, that is the thing to say
    if not create:
        raise ConfigError(
            f"there is no database {file}: nothing was crawled here yet, or set -c, --data-path or its URL"
        )
    make_data_path(options)


def enter_on_start(taskdb: TaskDB, project: Project) -> None:
    """Have on_start of a project called (behaviour W: Run). Each call of this is one call of on_start."""
    task = NewTask(
        taskid="on_start",
        project=project.name,
        url="data:,on_start",
        schedule={"age": 0, "priority": 9, "force_update": True},
        process={"callback": "on_start"},
        generation=project.generation,
    )
    _enter(taskdb, project, f"start:{project.name}:{secrets.token_hex(8)}", ControlKind.START, task)


def enter_delete(taskdb: TaskDB, project: Project) -> None:
    """Have the scheduler delete a project with its tasks and results."""
    task = NewTask(taskid="delete", project=project.name, url="data:,delete", generation=project.generation)
    _enter(taskdb, project, delete_key(project), ControlKind.DELETE, task)


def delete_key(project: Project) -> str:
    """Id of the control row that asks for a project's deletion."""
    return f"delete:{project.name}:{project.generation}"


def _enter(taskdb: TaskDB, project: Project, key: str, kind: ControlKind, task: NewTask) -> None:
    control = Control(
        id=key, project=project.name, kind=kind, generation=project.generation, task=task, created=time.time()
    )
    with taskdb.begin(None) as transaction:
        transaction.add_controls([control])
