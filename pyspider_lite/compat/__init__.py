"""Lets scripts written for pyspider import what they imported there. Deletable: only old scripts would notice.

`install` is called (through `pyspider_lite.old_names`, which does not mind if this folder is gone) by processes that load scripts, a
user's class or a logging ini; never by importing pyspider_lite. It adds a finder for the old module names *behind* all others, so a
real pyspider (or a user's own ``libs``) that can be imported wins.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_OURS = "pyspider_lite.compat"
_LIBS: dict[str, str | None] = {
    "base_handler": f"{_OURS}.base_handler",
    "utils": f"{_OURS}.utils",
    "response": f"{_OURS}.response",
    "url": f"{_OURS}.url",
    "dataurl": f"{_OURS}.dataurl",
    "log": f"{_OURS}.log",
    "pprint": "pprint",
    "ListIO": f"{_OURS}.utils",
    "multiprocessing_queue": f"{_OURS}.multiprocessing_queue",
    "sample_handler": f"{_OURS}.sample_handler",
}
_DATABASES = ("taskdb", "projectdb", "resultdb")

#: old name -> the module that has its names, imported when the old name is; None for a package of nothing but modules.
#: Roles are named as text only: no import from here may reach up to them.
ALIASES: dict[str, str | None] = {
    "pyspider": "pyspider_lite",
    "pyspider.libs": None,
    "libs": None,
    "pyspider_lite.libs": None,
    **{
        f"{package}.{name}": module
        for package in ("pyspider.libs", "libs", "pyspider_lite.libs")
        for name, module in _LIBS.items()
    },
    "pyspider.result": f"{_OURS}.result",
    "pyspider.result.result_worker": f"{_OURS}.result",
    "pyspider.database": f"{_OURS}.database",
    "pyspider.database.base": None,
    **{f"pyspider.database.base.{kind}": f"{_OURS}.database" for kind in _DATABASES},
    **{
        f"pyspider.database.{engine}{kind}": f"{_OURS}.database:{engine}"
        for engine in ("sqlite", "mysql", "sqlalchemy", "local")
        for kind in ("", *(f".{kind}" for kind in _DATABASES))
    },
    "pyspider.message_queue": f"{_OURS}.message_queue",
    "pyspider.run": f"{_OURS}.run",
    "pyspider.scheduler": f"{_OURS}.roles",
    "pyspider.scheduler.scheduler": f"{_OURS}.roles",
    "pyspider.scheduler.token_bucket": "pyspider_lite.scheduler.token_bucket",
    "pyspider.fetcher": f"{_OURS}.roles",
    "pyspider.fetcher.tornado_fetcher": f"{_OURS}.roles",
    "pyspider.processor": f"{_OURS}.roles",
    "pyspider.processor.processor": f"{_OURS}.roles",
    "six": f"{_OURS}.six_shim",
    "six.moves": f"{_OURS}.six_shim",
    "six.moves.urllib": "urllib",
    "six.moves.urllib.parse": "urllib.parse",
    "six.moves.urllib.request": "urllib.request",
    "six.moves.urllib.error": "urllib.error",
    "six.moves.html_parser": "html.parser",
    "six.moves.http_client": "http.client",
    "six.moves.http_cookiejar": "http.cookiejar",
}

_ANOTHER_DATABASE = "tasks, projects and results are kept in SQLite, MySQL/MariaDB or PostgreSQL"
#: what pyspider had and we have not: why, in the words of the exception
LEFT_OUT: dict[str, str] = {
    **{f"pyspider.database.{engine}": _ANOTHER_DATABASE for engine in ("mongodb", "redis", "couchdb", "elasticsearch")},
    **{
        f"pyspider.message_queue.{name}": "use connect_message_queue of pyspider.message_queue"
        for name in ("rabbitmq", "redis_queue", "kombu_queue")
    },
    "pyspider.webui": "there is no web UI yet",
    "pyspider.scheduler.task_queue": "tasks wait in the taskdb, there is no task queue in memory",
    "pyspider.processor.project_module": "projects.NAME can be imported in a script",
    "pyspider.libs.counter": "counts are read over the scheduler's XML-RPC method counter, or from /metrics",
    "pyspider.libs.result_dump": "use `pyspider_lite result export`",
    "pyspider.libs.wsgi_xmlrpc": "use xmlrpc.server of the standard library",
    "pyspider.libs.bench": "use `pyspider_lite bench`",
}
_PACKAGES = {name.rpartition(".")[0] for name in (*ALIASES, *LEFT_OUT)}


class AliasFinder(MetaPathFinder, Loader):
    """Finds and fills the modules of `ALIASES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of ours, unless its package is somebody else's. ModuleNotFoundError for what is left out says why."""
        parent = fullname.rpartition(".")[0]
        # by its module's name: another finder of ours may have made the package
        made_by = type(getattr(sys.modules.get(parent), "__loader__", None)).__module__
        if parent and parent != "pyspider_lite" and made_by != __name__:
            return None
        if fullname in LEFT_OUT:
            raise ModuleNotFoundError(f"{fullname} is not part of pyspider_lite: {LEFT_OUT[fullname]}", name=fullname)
        if fullname not in ALIASES:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in _PACKAGES)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The usual empty module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of the one it stands for; those made on first use come through ``__getattr__``."""
        if module.__name__ == "pyspider":
            # logging.conf is beside it, as it was in pyspider's folder (behaviour A1)
            module.__dict__["__file__"] = __file__
        name = ALIASES[module.__name__]
        source = _source(name) if name else ModuleType(module.__name__)
        kept = ("__all__", "__version__", "__doc__")
        names = {key: value for key, value in vars(source).items() if not key.startswith("__") or key in kept}
        # submodules that were imported under their new name are no part of the old one
        module.__dict__.update(
            {key: value for key, value in names.items() if f"{module.__name__}.{key}" not in ALIASES}
        )

        def get(attribute: str) -> object:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            if f"{module.__name__}.{attribute}" in ALIASES:  # six.moves, after ``import six``
                return import_module(f"{module.__name__}.{attribute}")
            return getattr(source, attribute)

        module.__dict__["__getattr__"] = get


def _source(name: str) -> object:
    """The module, or the part of one behind a colon."""
    module, _, part = name.partition(":")
    return getattr(import_module(module), part) if part else import_module(module)


def install() -> None:
    """Make the old names importable in this process; a second call does nothing."""
    if not any(isinstance(finder, AliasFinder) for finder in sys.meta_path):
        sys.meta_path.append(AliasFinder())


def uninstall() -> None:
    """Take the old names away again (tests, and embedders)."""
    sys.meta_path[:] = [finder for finder in sys.meta_path if not isinstance(finder, AliasFinder)]
    for name, module in list(sys.modules.items()):
        if isinstance(getattr(module, "__loader__", None), AliasFinder):
            del sys.modules[name]
