"""Leases with a clock that runs on, and what workers say, for the tests of each rule of the protocol."""

from typing import Any

from pyspider_lite.models.names import Role, RunKey
from pyspider_lite.models.worker import Beat, Claim
from pyspider_lite.scheduler.leases import Leases, Lost

Q, PAGES = "scheduler2fetcher", "fetcher2processor"


def run(taskid: str = "t", number: int = 0) -> RunKey:
    return ("p", taskid, number)


def beat(worker: str = "w", role: str = Role.FETCHER, **fields: Any) -> Beat:
    return Beat(worker=worker, role=role, host="h", pid=1, pool_size=10, **fields)


def claim(batch: str, *runs: RunKey, worker: str = "w", queue: str = Q) -> Claim:
    return Claim(worker=worker, queue=queue, batch=batch, runs=list(runs))


class Clocked:
    """Leases with a clock that runs on."""

    def __init__(self) -> None:
        self.leases = Leases()
        self.now = 0.0
        self.leases.advance(0.0, drained=True)

    def give(self, batch: str, *runs: RunKey, cap: float = 1e9) -> None:
        self.leases.dispatch(batch, Q, [(key, f"ticket of {key[1]}", cap) for key in runs])
        self.leases.sent(batch)

    def wait(self, seconds: float, *beats: Beat, drained: bool = True, step: float = 0.5) -> list[Lost]:
        """Time goes by; these workers beat. What was lost."""
        lost: list[Lost] = []
        for _ in range(round(seconds / step)):
            self.now += step
            self.leases.advance(self.now, drained=drained)
            for one in beats:
                self.leases.beat(one)
            lost += self.leases.check()
        return lost


def lost_keys(lost: list[Lost]) -> list[RunKey]:
    return [one.run for one in lost]
