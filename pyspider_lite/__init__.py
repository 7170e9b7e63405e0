"""A crawler suite: scheduler, fetchers, processors and result workers, and the names that users' scripts import from it.

``from pyspider_lite import *`` gives what a script needs. Importing the package itself costs nothing: the names are loaded on
first use, so that the daemons do not pay for what only scripts need.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspider_lite.handler import BaseHandler, catch_status_code_error, config, every, not_send_status
    from pyspider_lite.response import Response

__version__ = "0.1.0"

__all__ = ["BaseHandler", "Response", "catch_status_code_error", "config", "every", "not_send_status"]

_HOMES = {name: "pyspider_lite.response" if name == "Response" else "pyspider_lite.handler" for name in __all__}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'pyspider_lite' has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(home), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
