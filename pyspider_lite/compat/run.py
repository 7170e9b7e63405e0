"""What is imported from ``pyspider.run``: the command line as functions. By name only, it is of a floor above this one."""

import sys
from importlib import import_module
from typing import Any

_COMMANDS = (
    "scheduler",
    "fetcher",
    "processor",
    "result_worker",
    "phantomjs",
    "puppeteer",
    "all",
    "one",
    "send_message",
)


def main() -> None:
    """Run the command line and end the process with its exit code."""
    sys.exit(import_module("pyspider_lite.cli").main())


def __getattr__(name: str) -> Any:
    command_line = import_module("pyspider_lite.cli").commands
    if name == "cli":
        return command_line
    if name in _COMMANDS:
        return command_line.get_command(None, name)
    raise AttributeError(f"pyspider_lite has no command {name}")
