"""Plays workers until it is ended: ``python -m pyspider_lite.bench.idle_workers CONFIG [ROLE ...]``, one worker for each role that is named."""

import signal
import sys

from pyspider_lite import configuration
from pyspider_lite.bench.idle_workers.worker import IdleWorker
from pyspider_lite.models.names import Role


def main(config: str, roles: list[str]) -> None:
    """Does not return: SIGTERM ends it, without a goodbye of its workers."""
    settings = configuration.load(config, {}, {}).settings
    for role in roles:
        IdleWorker(settings, Role(role)).start()
    signal.pause()


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
