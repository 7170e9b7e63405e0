"""What is imported from ``pyspider.scheduler``, ``pyspider.fetcher`` and ``pyspider.processor``: the classes named in configurations.

Each is imported when it is asked for, by name only: roles are of floors above this one.
"""

from importlib import import_module
from typing import Any

_HOMES = {
    **dict.fromkeys(
        ("Scheduler", "ThreadBaseScheduler", "OneScheduler"), "pyspider_lite.scheduler.scheduler:Scheduler"
    ),
    "Fetcher": "pyspider_lite.fetcher.fetcher:Fetcher",
    "Processor": "pyspider_lite.processor.processor:Processor",
    "ProcessorResult": "pyspider_lite.handler:Outcome",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"pyspider_lite has no {name} of pyspider's")
    module, _, attribute = _HOMES[name].partition(":")
    return getattr(import_module(module), attribute)
