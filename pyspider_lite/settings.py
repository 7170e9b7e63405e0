"""What can be set, with its default, its limits and the variable that sets it.

These structs are the only list of options: the command line, config.example.json and the messages are made from them.
`configuration` fills them; bootstrap gets the finished value.
"""

import hashlib
import os
import re
from collections.abc import Iterator
from typing import Annotated, Any, NamedTuple, get_args, get_type_hints
from urllib.parse import quote, unquote

import msgspec
from msgspec import Meta, Struct, field

from pyspider_lite.log import mask_url

KIB, MIB, GIB = 1024, 1024**2, 1024**3
SCHEDULER_PORT = 23333
_BROKER_PORTS = {"redis": 6379, "rediss": 6379, "amqp": 5672, "amqps": 5671}
FETCHER_PORT = 24444
#: pages that one fetcher may fetch at the same time
MAX_POOLSIZE = 10_000


def option(text: str, env: str = "", **limits: Any) -> Meta:
    """What an option means, the environment variable that sets it, and its limits."""
    return Meta(description=text, extra={"env": env}, **limits)


class Scheduler(Struct, kw_only=True):
    """Section ``scheduler`` (behaviour C30 to C40)."""

    no_xmlrpc: Annotated[bool, option("Do not listen for XML-RPC.")] = False
    xmlrpc_host: Annotated[str, option("Address that XML-RPC listens on.")] = "127.0.0.1"
    xmlrpc_port: (
        Annotated[
            int,
            option("Port of XML-RPC; not set: 23333 or the next free one.", "SCHEDULER_XMLRPC_PORT", ge=0, le=65535),
        ]
        | None
    ) = None
    inqueue_limit: Annotated[
        int, option("Most tasks that wait of one project, more are refused; 0: no limit.", ge=0)
    ] = 0
    delete_time: Annotated[int, option("Seconds after which a stopped project of group 'delete' is deleted.", ge=0)] = (
        86400
    )
    active_tasks: Annotated[int, option("How many of a project's last tasks are remembered for display.", ge=0)] = 100
    fail_pause_num: Annotated[int, option("Failures in a row after which a project pauses; 0: never.", ge=0)] = 10
    scheduler_cls: Annotated[str, option("Class to run instead of ours, as module.Class.")] = ""
    window: Annotated[int, option("Most due tasks of one project kept in memory.", ge=10)] = 5_000
    window_total: Annotated[int, option("Most due tasks of all projects kept in memory.", ge=1000)] = 1_000_000
    known_keys: Annotated[int, option("How many known task ids are remembered, to drop repeats cheaply.", ge=0)] = (
        1_000_000
    )


class Fetcher(Struct, kw_only=True):
    """Section ``fetcher`` (behaviour C41 to C49)."""

    no_xmlrpc: Annotated[bool, option("Do not listen for XML-RPC.")] = False
    xmlrpc_host: Annotated[str, option("Address that XML-RPC listens on.")] = "127.0.0.1"
    xmlrpc_port: (
        Annotated[
            int, option("Port of XML-RPC; not set: 24444 or the next free one.", "FETCHER_XMLRPC_PORT", ge=0, le=65535)
        ]
        | None
    ) = None
    poolsize: Annotated[int, option("How many pages are fetched at the same time.", ge=1, le=MAX_POOLSIZE)] = 100
    proxy: Annotated[str, option("Proxy for all fetches: HOST:PORT or a URL.")] = ""
    user_agent: Annotated[str, option("User-Agent header where the script sets none.")] = ""
    timeout: Annotated[float, option("Seconds for a whole fetch where the script sets none.", gt=0)] = 120.0
    connect_timeout: Annotated[float, option("Seconds to connect where the script sets none.", gt=0)] = 20.0
    fetcher_cls: Annotated[str, option("Class to run instead of ours, as module.Class.")] = ""
    body_limit: Annotated[int, option("Largest body accepted from the wire, bytes.", ge=KIB)] = 8 * MIB
    decoded_limit: Annotated[int, option("Largest body accepted after decompression, bytes.", ge=KIB)] = 32 * MIB
    header_limit: Annotated[int, option("Most bytes of headers accepted.", ge=KIB)] = 256 * KIB
    max_redirects: Annotated[int, option("Redirects followed where the script sets no number.", ge=0)] = 5
    ca_file: Annotated[str, option("File of CA certificates to trust; not set: the system's, else certifi's.")] = ""
    allow_link_local: Annotated[bool, option("Fetch from link-local and cloud metadata addresses too.")] = False


class Processor(Struct, kw_only=True):
    """Section ``processor`` (behaviour C50, C51)."""

    processor_cls: Annotated[str, option("Class to run instead of ours, as module.Class.")] = ""
    process_time_limit: Annotated[float, option("Seconds that a callback may run; 0: no limit.", ge=0)] = 30.0
    memory_limit: Annotated[
        int, option("Most memory of the process that runs callbacks, bytes; 0: no limit.", ge=0)
    ] = GIB
    log_limit: Annotated[int, option("Bytes kept of what a callback prints and logs.", ge=0)] = 64 * KIB


class ResultWorker(Struct, kw_only=True):
    """Section ``result_worker`` (behaviour C52)."""

    result_cls: Annotated[str, option("Class to run instead of ours, as module.Class.")] = ""
    on_result_limit: Annotated[float, option("Seconds that on_result of such a class may take; 0: no limit.", ge=0)] = (
        300.0
    )


class All(Struct, kw_only=True):
    """Section ``all`` (behaviour C65)."""

    fetcher_num: Annotated[int, option("How many fetchers to start.", ge=1)] = 1
    processor_num: Annotated[int, option("How many processors to start.", ge=1)] = 1
    result_worker_num: Annotated[int, option("How many result workers to start.", ge=1)] = 1


class Settings(Struct, kw_only=True):
    """Every option; the top level holds the global ones (behaviour C10 to C23)."""

    logging_config: Annotated[str, option("File for Python's logging.config.fileConfig.")] = ""
    debug: Annotated[bool, option("Log in full detail.")] = False
    queue_maxsize: Annotated[int, option("Most messages in each queue; 0: no limit.", "QUEUE_MAXSIZE", ge=0)] = 100
    queue_prefix: Annotated[str, option("Put before the queues' names on a broker.", max_length=100)] = "pyspider_lite."
    taskdb: Annotated[str, option("URL of the database of tasks; not set: DATA_PATH/task.db.", "TASKDB")] = ""
    projectdb: Annotated[
        str, option("URL of the database of projects; not set: DATA_PATH/project.db.", "PROJECTDB")
    ] = ""
    resultdb: Annotated[str, option("URL of the database of results; not set: DATA_PATH/result.db.", "RESULTDB")] = ""
    message_queue: Annotated[str, option("URL of the message queue; not set: built in, one machine.", "AMQP_URL")] = ""
    data_path: Annotated[str, option("Folder for everything that is kept in files.")] = "./data"
    add_sys_path: Annotated[bool, option("Let classes be imported from the working directory.")] = True
    drain_timeout: Annotated[float, option("Seconds to finish work in hand after SIGTERM.", ge=0)] = 30.0
    health_host: Annotated[str, option("Address that /healthz, /readyz and /metrics listen on; they only read.")] = (
        "127.0.0.1"
    )
    health_port: (
        Annotated[
            int,
            option(
                "Port of /healthz, /readyz and /metrics, or the next free one; 0: any; not set: none.", ge=0, le=65535
            ),
        ]
        | None
    ) = None
    rpc_secret: Annotated[
        str, option("Secret that callers of XML-RPC need; without one it is for this machine only.", "RPC_SECRET")
    ] = ""
    scheduler_rpc: Annotated[
        str, option("URL of the scheduler's XML-RPC; not set: asked of the taskdb, which knows who leads.")
    ] = ""
    coordination: Annotated[
        str,
        option(
            "Who decides which scheduler leads: zookeeper://HOST[:PORT][,HOST...][/PATH]; not set: the taskdb alone.",
        ),
    ] = ""
    scheduler: Scheduler = field(default_factory=Scheduler)
    fetcher: Fetcher = field(default_factory=Fetcher)
    processor: Processor = field(default_factory=Processor)
    result_worker: ResultWorker = field(default_factory=ResultWorker)
    all: All = field(default_factory=All)

    @property
    def queue_url(self) -> str:
        """Where the queues are: on the broker that was named, else with the `all` that runs in the same data_path."""
        return self.message_queue or f"builtin://{queue_socket(self.data_path)}"

    @property
    def digest(self) -> str:
        """Tells whether two processes belong together: databases, broker and prefix, without telling what they are. The rest may
        well differ from machine to machine, and passwords while they are changed everywhere."""
        urls = (self.taskdb, self.projectdb, self.resultdb, _normal(self.queue_url))
        shared = [*(mask_url(url, alone=True) for url in urls), self.queue_prefix]
        return hashlib.sha256(msgspec.json.encode(shared)).hexdigest()[:12]


SECTIONS: dict[str, type[Struct]] = {
    "": Settings,
    "scheduler": Scheduler,
    "fetcher": Fetcher,
    "processor": Processor,
    "result_worker": ResultWorker,
    "all": All,
}


_SECRET = frozenset(
    {
        "taskdb",
        "projectdb",
        "resultdb",
        "message_queue",
        "rpc_secret",
        "scheduler_rpc",
        "coordination",
        "fetcher.proxy",
    }
)


class Option(NamedTuple):
    """One option as declared above."""

    section: str
    name: str
    type: Any
    default: Any
    meta: Meta

    @property
    def path(self) -> str:
        """section.name as messages show it."""
        return f"{self.section}.{self.name}" if self.section else self.name

    @property
    def secret(self) -> bool:
        """Its value may hold a password."""
        return self.path in _SECRET

    @property
    def env(self) -> str:
        """The environment variable that sets it, or ""."""
        return str((self.meta.extra or {}).get("env", ""))


def options(section: str) -> Iterator[Option]:
    """The options of a section ("" for the top level), in the order of declaration."""
    struct = SECTIONS[section]
    hints = get_type_hints(struct, include_extras=True)
    for info in msgspec.structs.fields(struct):
        for part in (hints[info.name], *get_args(hints[info.name])):  # int, or int | None
            for meta in getattr(part, "__metadata__", ()):
                yield Option(section, info.name, part, info.default, meta)


def _normal(queue_url: str) -> str:
    """Of a broker's URL one of the ways to write it: the default port is named, and so is Redis' database 0, for which pyspider's
    tutorials have /db (behaviour Q3); the virtual host is encoded."""
    url = queue_url.strip().removeprefix("kombu+")
    match = re.fullmatch(r"(rediss?|amqps?)://([^/?#;,]*)(/[^?#;,]*)?", url)
    if match is None:
        return url
    scheme, place, path = match[1], match[2], (match[3] or "")
    if not re.search(r":\d+$", place.rpartition("@")[2]):
        place = f"{place.removesuffix(':')}:{_BROKER_PORTS[scheme]}"
    if scheme.startswith("redis"):
        database = path.strip("/")
        return f"{scheme}://{place}/{int(database) if database.isdecimal() else 0}"
    return f"{scheme}://{place}/{quote(unquote(path[1:]) or '/', safe='')}"


def sqlite_file(url: str) -> str | None:
    """The file that a database URL names; None for other engines and for databases in memory (behaviour D3)."""
    match = re.match(r"(?:sqlalchemy\+)?sqlite\+\w+:///([^?]+)", url)
    return match[1] if match else None


def default_database(kind: str, data_path: str) -> str:
    """The URL of a taskdb, projectdb or resultdb that nobody named (behaviour C90)."""
    return f"sqlite+{kind}:///{os.path.join(data_path, kind.removesuffix('db'))}.db"


def queue_socket(data_path: str) -> str:
    """The socket of the built-in queues of a data_path."""
    return os.path.join(os.path.abspath(data_path), "queue.sock")
