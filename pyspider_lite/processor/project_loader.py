"""Turns scripts into handlers (behaviour H1 to H7, P10 to P12) and keeps them, one for each version of a project.

Used by the runner, in the child and in the debugger. Scripts come from whoever `ask` leads to.
"""

import importlib.abc
import importlib.machinery
import linecache
import logging
import sys
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

import msgspec

from pyspider_lite import old_names
from pyspider_lite.errors import ScriptError
from pyspider_lite.handler import BaseHandler
from pyspider_lite.log import LogFormatter
from pyspider_lite.models.project import Project
from pyspider_lite.processor import python2
from pyspider_lite.processor.pipe import Script

#: versions kept in memory
KEPT = 200
#: seconds after which it is asked again whether a script is the newest, where that matters
RECHECK = 5.0

#: ask(project, wanted md5 or "", known md5 or "")
Ask = Callable[[str, str, str], Script]


class LoadedProject:
    """One version of a project, executed: its module, and the handler that serves all its tasks (behaviour H3)."""

    def __init__(self, project: Project, md5: str) -> None:
        self.name = project.name
        self.md5 = md5
        self.row = project_dict(project) | {"md5sum": md5}
        self.env: dict[str, Any] = {}
        #: modules of other projects that it imported (behaviour H7), with their versions
        self.imports: dict[str, tuple[ModuleType, str]] = {}
        #: time.monotonic() until which it need not be asked whether it is still what is wanted
        self.fresh_until = 0.0
        self.module: ModuleType | None = None
        self.handler: Any = None


def project_dict(project: Project) -> dict[str, Any]:
    """The row as scripts see it (behaviour H10)."""
    row = msgspec.structs.asdict(project)
    del row["generation"]
    return row


class ProjectLoader:
    """Loads and keeps; one for a process, because ``projects.*`` modules are global to it."""

    def __init__(self, ask: Ask, log: logging.Handler, env: dict[str, Any] | None = None) -> None:
        old_names.install()
        self._ask = ask
        self._log = log
        self._env = env or {}
        #: by the version that was asked for, which need not be the one that is there
        self._kept: OrderedDict[tuple[str, str], LoadedProject] = OrderedDict()
        self._active: LoadedProject | None = None
        log.setFormatter(LogFormatter(color=False))
        install_importer(self._import)

    def get(self, name: str, md5: str = "") -> LoadedProject:
        """The project in the version ``md5``, or the newest if that is gone or "". Raises what the script raises while it is
        executed, AssertionError if there is no such project or it has no handler."""
        key = (name, md5)
        loaded = self._kept.get(key)
        if loaded is None or time.monotonic() >= loaded.fresh_until:
            loaded = self._load(name, md5, loaded)
            self._kept[key] = loaded
            if len(self._kept) > KEPT:
                self._kept.popitem(last=False)
        self._kept.move_to_end(key)
        self._activate(loaded)
        return loaded

    def _load(self, name: str, md5: str, known: LoadedProject | None) -> LoadedProject:
        answer = self._ask(name, md5, known.md5 if known and not self._imports_changed(known) else "")
        if not answer.md5:
            self._kept.pop((name, md5), None)
            raise AssertionError("no such project!")
        if answer.project is None:
            assert known is not None
            loaded = known
        else:
            # the same version may be there under its own name
            loaded = self._kept.get((name, answer.md5)) if known is None else None  # type: ignore[assignment]
            if loaded is None or loaded.imports:
                loaded = LoadedProject(answer.project, answer.md5)
                self._activate(loaded)
                self._execute(loaded)
        exact = loaded.md5 == md5
        loaded.fresh_until = time.monotonic() + RECHECK if loaded.imports or not exact else float("inf")
        return loaded

    def _imports_changed(self, loaded: LoadedProject) -> bool:
        return any(self._ask(name, "", md5).md5 != md5 for name, (_, md5) in loaded.imports.items())

    def _activate(self, loaded: LoadedProject) -> None:
        """``projects.*`` in sys.modules are those that this project imported: each has its own, in the version it was loaded with."""
        if self._active is loaded:
            return
        for name in self._active.imports if self._active else ():
            _place(name, None)
        for name, (module, _) in loaded.imports.items():
            _place(name, module)
        self._active = loaded

    def _execute(self, loaded: LoadedProject) -> None:
        module = ModuleType(loaded.name)
        module.__dict__.update(__file__=f"<{loaded.name}>", __package__="", __project__=loaded.row)
        execute(loaded.row["script"], module)
        script_logger = make_logger(loaded.name, self._log)
        module.__dict__["logger"] = script_logger
        module.__dict__["logging"] = LoggingModule(script_logger)
        handler_class = find_handler(module)
        handler: Any = object.__new__(handler_class)
        loaded.env = dict(self._env)
        handler.__env__ = loaded.env
        handler.project_name = loaded.name
        handler.project = loaded.row
        handler.logger = script_logger
        handler.__init__()
        loaded.module = module
        loaded.handler = handler

    def _import(self, name: str, module: ModuleType) -> None:
        """Execute another project's script as module ``projects.name``, whatever its status (behaviour H7)."""
        answer = self._ask(name, "", "")
        if answer.project is None:
            raise ModuleNotFoundError(f"no project named {name!r}", name=f"projects.{name}")
        if self._active is not None:
            self._active.imports[name] = (module, answer.md5)
        module.__dict__.update(__file__=f"<{name}>", __project__=project_dict(answer.project))
        try:
            execute(answer.project.script, module)
        except BaseException:
            if self._active is not None:
                self._active.imports.pop(name, None)
            raise


def _place(name: str, module: ModuleType | None) -> None:
    """Have ``projects.name`` mean this module, or be imported anew."""
    package = sys.modules.get("projects")
    if module is None:
        sys.modules.pop(f"projects.{name}", None)
        if package is not None:
            package.__dict__.pop(name, None)
        return
    sys.modules[f"projects.{name}"] = module
    if package is not None:
        package.__dict__[name] = module


def execute(script: str, module: ModuleType) -> None:
    """Run ``script`` in ``module``; its lines are known to tracebacks."""
    file = module.__dict__["__file__"]
    linecache.cache[file] = (len(script), None, script.splitlines(keepends=True), file)
    try:
        code = compile(script, file, "exec", dont_inherit=True)
        exec(code, module.__dict__)
    except Exception as error:
        python2.explain(error)
        raise


def find_handler(module: ModuleType) -> type:
    """The class that is the project (behaviour H2); AssertionError if there is none."""
    names = module.__dict__
    chosen = names.get("__handler_cls__")
    if isinstance(chosen, type):
        return chosen
    own_base = names.get("BaseHandler")
    bases = tuple({BaseHandler, own_base} if isinstance(own_base, type) else {BaseHandler})
    for value in reversed(list(names.values())):
        if isinstance(value, type) and issubclass(value, bases) and value not in bases:
            return value
    raise AssertionError("need BaseHandler in project module")


def make_logger(name: str, handler: logging.Handler) -> logging.Logger:
    """A logger that only ``handler`` hears (behaviour H4)."""
    made = logging.Logger(name)
    made.addHandler(handler)
    return made


class LoggingModule:
    """What ``logging`` is in a script after it was executed: its logger, and all else of the logging module (FIX of H4)."""

    def __init__(self, script_logger: logging.Logger) -> None:
        self._logger = script_logger

    def __getattr__(self, name: str) -> Any:
        if name in _LOGGER_METHODS:
            return getattr(self._logger, name)
        return getattr(logging if hasattr(logging, name) else self._logger, name)


#: functions of the logging module that are for the root logger
_LOGGER_METHODS = frozenset(
    ("debug", "info", "warning", "warn", "error", "exception", "critical", "fatal", "log", "disabled", "handlers")
)


class _Importer(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    """Finds ``projects`` and ``projects.NAME``."""

    def __init__(self) -> None:
        self.run: Callable[[str, ModuleType], None] | None = None

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        package, _, name = fullname.partition(".")
        if package != "projects" or "." in name:
            return None
        return importlib.machinery.ModuleSpec(fullname, self, is_package=not name)

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.partition(".")[2]
        if not name:
            return
        if self.run is None:
            raise ScriptError("scripts of other projects cannot be imported here")
        self.run(name, module)


_importer = _Importer()


def install_importer(run: Callable[[str, ModuleType], None]) -> None:
    """Have ``import projects.NAME`` execute scripts by ``run(name, module)``; the last caller wins."""
    _importer.run = run
    if _importer not in sys.meta_path:
        # before the path: a folder called projects is no project of ours
        sys.meta_path.insert(0, _importer)
