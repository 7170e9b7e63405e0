"""How settings become databases, queues and roles; together with `bootstrap`, which runs what is built here, the composition root.

Roles are imported when they are built, so that a fetcher does not carry SQLAlchemy, nor a scheduler pycurl. What cannot be built
is a ConfigError or RefusedToStart.
"""

import contextlib
import functools
import importlib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pyspider_lite import message_queue, old_names, orders, settings
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.errors import ConfigError, text_of
from pyspider_lite.health import Subject
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.readings import Watched
from pyspider_lite.settings import Settings

#: names of pyspider's own classes, which old configurations spell out (behaviour C39, C49, C50, C52): ours are meant
_OURS = frozenset(
    {
        "pyspider.scheduler.ThreadBaseScheduler",
        "pyspider.scheduler.Scheduler",
        "pyspider.fetcher.Fetcher",
        "pyspider.fetcher.tornado_fetcher.Fetcher",
        "pyspider.processor.Processor",
        "pyspider.result.ResultWorker",
    }
)


class Runnable(Watched, Protocol):
    """What every role is."""

    def run(self) -> None:
        """Work until `stop`."""
        ...

    def stop(self) -> None:
        """Finish and return from `run`; from any thread, and from a signal handler."""
        ...


class Part(NamedTuple):
    """A role that was built, and what goes with it."""

    role: Runnable
    #: to be started before the role and stopped after it; None for the scheduler, which hears those of the others
    heartbeat: Heartbeat | None = None
    rpc_functions: Mapping[str, Callable[..., Any]] = {}
    #: of the scheduler, which has no heartbeat
    worker: str = ""
    #: more for /readyz
    describe: Callable[[], Mapping[str, Any]] = dict
    #: give out no more work: all is about to stop; None for who gives out none
    hold: Callable[[], None] | None = None

    def subject(self, role: Role, stopping: Callable[[], bool]) -> Subject:
        """Whose health it is; ``stopping()``: a signal came."""
        heartbeat = self.heartbeat
        if heartbeat is None:
            return Subject(str(role), self.worker, self.role, stopping, self.describe)
        return Subject(str(role), heartbeat.info.worker, self.role, stopping, heartbeat.describe, heartbeat.readings)


#: seconds that `one` waits at most before it tries a task again
ONE_RETRY_CAP = 2.0


class Assembly:
    """Builds roles from settings; ``stack`` closes what they use. ``scripts`` are the files that `one` crawls, and ``prints``
    says that their results are printed instead of stored."""

    def __init__(
        self,
        options: Settings,
        stack: contextlib.ExitStack,
        *,
        rpc_url: str = "",
        health_url: str = "",
        scripts: Sequence[str] = (),
        prints: bool = False,
    ) -> None:
        self._options = options
        self._stack = stack
        self._rpc_url = rpc_url
        self._health_url = health_url
        self._scripts = scripts
        self._prints = prints
        #: what the processors of this machine have begun; `one` dies with its scripts
        self._records = "" if scripts else os.path.join(options.data_path, "begun")
        #: called in the scheduler's thread whenever all projects are finished
        self.on_idle: Callable[[Any], None] | None = None

    def build(self, role: Role) -> Part:
        """The role with all that it needs."""
        builders = {
            Role.SCHEDULER: self._scheduler,
            Role.FETCHER: self._fetcher,
            Role.PROCESSOR: self._processor,
            Role.RESULT_WORKER: self._result_worker,
        }
        return builders[role]()

    def _scheduler(self) -> Part:
        from pyspider_lite.scheduler import election
        from pyspider_lite.scheduler.daemon import SchedulerDaemon
        from pyspider_lite.scheduler.remote import Remote
        from pyspider_lite.scheduler.scheduler import Options, Scheduler

        section = self._options.scheduler
        chosen = {name: getattr(section, name) for name in Options.__struct_fields__ if hasattr(section, name)}
        info = self._info(Role.SCHEDULER, 0)
        daemon = SchedulerDaemon(
            taskdb=self._taskdb(),
            projectdb=self._projectdb(),
            resultdb=self._resultdb(),
            connect=lambda name, late_ack: connector(self._options, name, late_ack)(),
            options=Options(
                **chosen,
                process_time_limit=self._options.processor.process_time_limit,
                # somebody waits for `one`: not for tomorrow's retry, nor for the next tick
                retry_cap=ONE_RETRY_CAP if self._scripts else math.inf,
                cron=not self._scripts,
                config_hash=self._options.digest,
            ),
            rpc=lambda: self._rpc_url,
            on_idle=self.on_idle,
            scheduler_cls=load_class(section.scheduler_cls, lambda: Scheduler, "scheduler-cls"),
            info=info,
            orders=self._orders(info),
            records=self._records,
            coordination=election.parse(self._options.coordination) if self._options.coordination else None,
        )
        remote = Remote(daemon, functools.partial(connect_taskdb, self._options))
        return Part(
            daemon,
            rpc_functions=remote.functions(),
            worker=info.worker,
            describe=daemon.describe,
            hold=daemon.hold,
        )

    def _fetcher(self) -> Part:
        from pyspider_lite.fetcher.fetch import Fetch
        from pyspider_lite.fetcher.fetcher import Fetcher
        from pyspider_lite.fetcher.http import HttpEngine
        from pyspider_lite.fetcher.remote import Remote
        from pyspider_lite.fetcher.request import Defaults
        from pyspider_lite.fetcher.transfer import EngineOptions

        section = self._options.fetcher
        if section.ca_file and not os.path.isfile(section.ca_file):
            raise ConfigError(f"ca-file {section.ca_file}: no such file")
        check_proxy(self._options)
        engine = HttpEngine(
            EngineOptions(
                body_limit=section.body_limit,
                header_limit=section.header_limit,
                ca_file=section.ca_file,
                allow_link_local=section.allow_link_local,
            )
        )
        defaults = Defaults(
            user_agent=section.user_agent,
            proxy=section.proxy,
            timeout=section.timeout,
            connect_timeout=section.connect_timeout,
            max_redirects=section.max_redirects,
        )
        heartbeat = self._heartbeat(Role.FETCHER, section.poolsize)
        fetcher = load_class(section.fetcher_cls, lambda: Fetcher, "fetcher-cls")(
            fetch=Fetch(engine, defaults, decoded_limit=section.decoded_limit),
            heartbeat=heartbeat,
            connect_in=connector(self._options, QueueName.TO_FETCHER),
            connect_out=connector(self._options, QueueName.TO_PROCESSOR),
            poolsize=section.poolsize,
            drain_timeout=self._options.drain_timeout,
        )
        heartbeat.obey(fetcher)
        return Part(fetcher, heartbeat, Remote(fetcher).functions())

    def _processor(self) -> Part:
        from pyspider_lite.flight_recorder import FlightRecorder
        from pyspider_lite.processor.processor import Options, Processor

        section = self._options.processor
        heartbeat = self._heartbeat(Role.PROCESSOR, 1)
        processor = load_class(section.processor_cls, lambda: Processor, "processor-cls")(
            heartbeat=heartbeat,
            projectdb=self._projectdb(),
            recorder=FlightRecorder(self._records, heartbeat.info.worker) if self._records else None,
            connect_pages=connector(self._options, QueueName.TO_PROCESSOR),
            connect_control=connector(self._options, QueueName.CONTROL),
            connect_results=connector(self._options, QueueName.RESULTS),
            options=Options(
                process_time_limit=section.process_time_limit,
                memory_limit=section.memory_limit,
                log_limit=section.log_limit,
                drain_timeout=self._options.drain_timeout,
                capture_stdout=not self._scripts,  # behaviour C95
            ),
        )
        heartbeat.obey(processor)
        return Part(processor, heartbeat)

    def _result_worker(self) -> Part:
        from pyspider_lite.result_worker import OneResultWorker, ResultWorker

        heartbeat = self._heartbeat(Role.RESULT_WORKER, 1)
        connect = connector(self._options, QueueName.RESULTS)
        chosen = load_class(
            self._options.result_worker.result_cls,
            lambda: OneResultWorker if self._prints else ResultWorker,
            "result-cls",
        )
        worker = chosen(self._resultdb(), connect)
        worker.attach(
            heartbeat=heartbeat,
            drain_timeout=self._options.drain_timeout,
            # the threads of `one` end together, by the user
            on_result_limit=0.0 if self._scripts else self._options.result_worker.on_result_limit,
        )
        heartbeat.obey(worker)
        return Part(worker, heartbeat)

    def _heartbeat(self, role: Role, pool_size: int) -> Heartbeat:
        info = self._info(role, pool_size)
        return Heartbeat(
            info,
            connector(self._options, QueueName.STATUS),
            orders=self._orders(info),
            last_words=connector(self._options, QueueName.STATUS, bounded=False),
        )

    def _info(self, role: Role, pool_size: int) -> WorkerInfo:
        return WorkerInfo.make(role, pool_size, self._options.digest, self._rpc_url, self._health_url)

    def _orders(self, info: WorkerInfo) -> Callable[[], MessageQueue] | None:
        """Opens the queue of the orders to a worker; nobody orders the threads of `one`."""
        return None if self._scripts else functools.partial(connect_orders, self._options, info.worker)

    def _taskdb(self) -> TaskDB:
        found = self._stack.enter_context(contextlib.closing(connect_taskdb(self._options)))
        _reach(self._options.taskdb, found.projects)
        return found

    def _projectdb(self) -> ProjectDB:
        if self._scripts:
            from pyspider_lite.database.script_files import ScriptFiles

            return ScriptFiles(self._scripts)
        found = self._stack.enter_context(contextlib.closing(connect_projectdb(self._options)))
        _reach(self._options.projectdb, found.stamp)
        return found

    def _resultdb(self) -> ResultDB:
        found = self._stack.enter_context(contextlib.closing(connect_resultdb(self._options)))
        _reach(self._options.resultdb, found.projects)
        return found


def _reach(url: str, look: Callable[[], object]) -> None:
    """A file that cannot be opened now never can; a server may just not be up yet, and is waited for by the role."""
    if settings.sqlite_file(url) is not None:
        look()


# --- parts --------------------------------------------------------------------------------------------------------------


def connect_taskdb(options: Settings) -> TaskDB:
    """The taskdb of the settings; its tables carry a prefix if the resultdb is in the same database (design, section 9)."""
    from pyspider_lite import database

    return database.connect_taskdb(options.taskdb, prefixed=database.share_tables(options.taskdb, options.resultdb))


def connect_projectdb(options: Settings) -> ProjectDB:
    """The projectdb of the settings."""
    from pyspider_lite import database

    return database.connect_projectdb(options.projectdb)


def connect_resultdb(options: Settings) -> ResultDB:
    """The resultdb of the settings; see `connect_taskdb`."""
    from pyspider_lite import database

    return database.connect_resultdb(options.resultdb, prefixed=database.share_tables(options.taskdb, options.resultdb))


def connector(
    options: Settings, name: QueueName, late_ack: bool = False, bounded: bool = True
) -> Callable[[], MessageQueue]:
    """Opens a connection to one queue each time it is called: one a thread."""
    message_queue.connect(options.queue_url, name).close()  # a URL that is none is found out now
    return functools.partial(
        message_queue.connect,
        options.queue_url,
        name,
        maxsize=options.queue_maxsize if bounded else 0,
        late_ack=late_ack,
        prefix=options.queue_prefix,
    )


def connect_orders(options: Settings, worker: str) -> MessageQueue:
    """The queue of the orders to a worker, for one thread."""
    name = orders.queue_name(worker)
    return message_queue.connect(options.queue_url, name, prefix=options.queue_prefix, expires=orders.MAX_AGE)


def check_proxy(options: Settings) -> None:
    """Raises ConfigError for a fetcher.proxy that no fetch could go through."""
    from pyspider_lite.fetcher.request import parse_proxy

    if options.fetcher.proxy:
        try:
            parse_proxy(options.fetcher.proxy)
        except ValueError as error:
            raise ConfigError(f"fetcher.proxy: {error}") from None


def load_class(name: str, default: Callable[[], type[Any]], option: str) -> type[Any]:
    """The class that an option names as module.Class (behaviour C77), or ours."""
    if not name or name in _OURS:
        return default()
    module_name, _, class_name = name.rpartition(".")
    old_names.install()
    try:
        found = getattr(importlib.import_module(module_name), class_name)
    except (Exception, SystemExit) as error:  # a user's module may raise anything
        raise ConfigError(f"{option}: {name} cannot be loaded: {type(error).__name__}: {text_of(error)}") from error
    if not isinstance(found, type):
        raise ConfigError(f"{option}: {name} is not a class")
    return found
