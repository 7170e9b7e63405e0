"""Says, once, that work waits and nobody takes it, and why: no fetcher is running, or all are paused. Asked by `daemon`."""

import logging

from pyspider_lite.models.names import Role
from pyspider_lite.scheduler.leases import Leases

logger = logging.getLogger("scheduler")

#: seconds that it may last before it is said: workers restart
_PATIENCE = 10.0


class Presence:
    """What was said of each role that every task needs."""

    def __init__(self) -> None:
        self._since: dict[Role, float] = {}
        self._said: dict[Role, str] = {}

    def look(self, now: float, leases: Leases) -> None:
        """To be called each second or so; ``now`` in any clock that only goes on."""
        for role in (Role.FETCHER, Role.PROCESSOR):
            reason = _absent(role, leases) if len(leases) else ""
            if not reason:
                self._since.pop(role, None)
                if self._said.pop(role, "") and len(leases):
                    logger.info("a %s is at work again", role)
            elif now - self._since.setdefault(role, now) >= _PATIENCE and self._said.get(role) != reason:
                self._said[role] = reason
                logger.warning("%s; tasks given out: %d", reason, len(leases))


def _absent(role: Role, leases: Leases) -> str:
    """Why nobody of a role is at work; "" if somebody is."""
    states = [worker.beat.state for worker in leases.workers.values() if worker.beat.role == role]
    if not states:
        return f"no {role} is running"
    return "" if "" in states else f"all {role}s are paused"
