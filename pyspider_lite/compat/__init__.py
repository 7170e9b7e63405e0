"""Lets scripts written for pyspider import what they imported there. Deletable: only old scripts would notice.

`install` is called once by the processor's child before it executes a script, never by importing pyspider_lite. It adds a finder
for the old module names *behind* all others, so a real pyspider (or a user's own ``libs``) that can be imported wins.
"""

import sys
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_LIBS = {
    "base_handler": "pyspider_lite.compat.base_handler",
    "utils": "pyspider_lite.compat.utils",
    "response": "pyspider_lite.response",
    "url": "pyspider_lite.compat.url",
    "pprint": "pprint",
    "ListIO": "pyspider_lite.compat.utils",
}

#: old name -> the module that has its names, imported when the old name is; None for a package of nothing but modules.
#: Roles are named as text only: no import from here may reach up to them.
ALIASES: dict[str, str | None] = {
    "pyspider": "pyspider_lite",
    "pyspider.libs": None,
    "pyspider.result": "pyspider_lite.result_worker",
    "pyspider.result.result_worker": "pyspider_lite.result_worker",
    "libs": None,
    "pyspider_lite.libs": None,
    **{
        f"{package}.{name}": module
        for package in ("pyspider.libs", "libs", "pyspider_lite.libs")
        for name, module in _LIBS.items()
    },
    "six": "pyspider_lite.compat.six_shim",
    "six.moves": "pyspider_lite.compat.six_shim",
    "six.moves.urllib": "urllib",
    "six.moves.urllib.parse": "urllib.parse",
    "six.moves.urllib.request": "urllib.request",
}
_PACKAGES = {name.rpartition(".")[0] for name in ALIASES}


class AliasFinder(MetaPathFinder, Loader):
    """Finds and fills the modules of `ALIASES`."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """A module of ours, unless its package is somebody else's."""
        if fullname not in ALIASES:
            return None
        parent = fullname.rpartition(".")[0]
        if parent and parent != "pyspider_lite" and getattr(sys.modules.get(parent), "__loader__", None) is not self:
            return None
        return ModuleSpec(fullname, self, is_package=fullname in _PACKAGES)

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        """The usual empty module."""
        return None

    def exec_module(self, module: ModuleType) -> None:
        """Give the module the names of the one it stands for; those made on first use come through ``__getattr__``."""
        name = ALIASES[module.__name__]
        if name is None:
            return
        source = import_module(name)
        kept = ("__all__", "__version__", "__doc__")
        names = {key: value for key, value in vars(source).items() if not key.startswith("__") or key in kept}
        module.__dict__.update(names)

        def get(attribute: str) -> object:
            if attribute.startswith("__"):
                raise AttributeError(attribute)
            return getattr(source, attribute)

        module.__dict__["__getattr__"] = get


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
