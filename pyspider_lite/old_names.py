"""Makes pyspider's module names importable, if the folder that has them is there. Called by processes that load what users wrote:
scripts, classes named in the configuration, logging inis.

The folder (`compat`) is known here by name only, so that it can be deleted without a change anywhere else.
"""

import importlib
import importlib.util

_CORNER = "pyspider_lite.compat"


def install() -> None:
    """Have ``import pyspider`` and its likes work in this process; a second call does nothing."""
    if importlib.util.find_spec(_CORNER) is not None:
        importlib.import_module(_CORNER).install()
