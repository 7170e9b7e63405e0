"""Played workers beside a `Suite`, in processes that are none of its own."""

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pyspider_lite.bench.closing import Closing
from pyspider_lite.models.names import Role

#: workers that one process plays at most: each has five threads or six, which take turns at being run
_EACH = 25


class Crowd(Closing):
    """So many workers of each role, between `__enter__` and `__exit__`; ``config`` is the file that the daemons beside them were started with."""

    def __init__(self, config: Path, workers: Mapping[Role, int], log: Path) -> None:
        self._config = config
        self._roles = [str(role) for role, number in workers.items() for _ in range(number)]
        self._log = log
        self._players: list[subprocess.Popen[Any]] = []

    def start(self) -> None:
        """Start their processes, each with some of every role."""
        players = -(-len(self._roles) // _EACH)
        with open(self._log, "ab") as log:
            for first in range(players):
                words = [sys.executable, "-m", __package__, str(self._config), *self._roles[first::players]]
                self._players.append(subprocess.Popen(words, stdout=log, stderr=log))

    def close(self) -> None:
        """End them."""
        for player in self._players:
            player.terminate()
        for player in self._players:
            player.wait()
        self._players.clear()

    @property
    def size(self) -> int:
        """How many workers they play."""
        return len(self._roles)

    @property
    def runs(self) -> bool:
        """None of the processes has ended."""
        return all(player.poll() is None for player in self._players)
