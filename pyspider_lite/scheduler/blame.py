"""Over which runs workers died, and which may have killed them without anybody having seen it. Pure; `leases` counts what it sees,
`deaths` what was found in rows and in records that dead processors left."""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

#: lease key: project and taskid (or control id)
LeaseKey = tuple[str, str]

#: silent workers that are remembered in case they come back
MOST_SILENT = 1_000
#: suspects that are remembered
_MOST_SUSPECTS = 10_000
#: kills of all that ran on a machine after which what ran at each of them goes alone
APART_AFTER = 2


class Toll(Struct, frozen=True):
    """What a run that is open has cost so far."""

    #: workers that died over it, or had to end before it did
    deaths: int = 0
    #: how often all that ran on a machine was killed while it ran
    kills: int = 0


NOTHING = Toll()


class Blame:
    """Deaths and suspects, by lease key."""

    def __init__(self) -> None:
        self.tolls: dict[LeaseKey, Toll] = {}
        #: grows with each change of a toll
        self.changes = 0
        #: what was in the hands of a processor that died, until it is over: that may have died of any of them before it could say
        #: which one it ran. They are run one at a time, and each is named before it begins (docs/architecture.md)
        self.suspects: dict[LeaseKey, None] = {}
        #: keys whose toll is another than in their row
        self._counted: dict[LeaseKey, None] = {}
        #: silent workers that a death was counted for, and over which task
        self._silent: dict[str, LeaseKey] = {}

    def deaths(self, key: LeaseKey) -> int:
        """Workers that died over it."""
        return self.tolls.get(key, NOTHING).deaths

    def kills(self, key: LeaseKey) -> int:
        """How often it ran when all was killed."""
        return self.tolls.get(key, NOTHING).kills

    def count(self, key: LeaseKey) -> int:
        """A worker died over it; how many have by now."""
        self._set(key, replace(self.tolls.get(key, NOTHING), deaths=self.deaths(key) + 1))
        return self.deaths(key)

    def count_kill(self, key: LeaseKey) -> None:
        """It ran when all that ran on a machine was killed, the scheduler with it."""
        self._set(key, replace(self.tolls.get(key, NOTHING), kills=self.kills(key) + 1))
        self.suspect([key])

    def count_silent(self, worker: str, key: LeaseKey) -> None:
        """A worker fell silent while it ran this; `absolve` takes it back."""
        self.count(key)
        self._silent[worker] = key
        if len(self._silent) > MOST_SILENT:
            del self._silent[next(iter(self._silent))]

    def absolve(self, worker: str) -> None:
        """It was silent and not dead (frozen, cut off): that is no task's fault."""
        key = self._silent.pop(worker, None)
        if key is not None and self.deaths(key):
            self._set(key, replace(self.tolls[key], deaths=self.deaths(key) - 1))

    def suspect(self, keys: Iterable[LeaseKey]) -> None:
        """Whoever had these may have died of one of them."""
        self.suspects.update(dict.fromkeys(keys))
        for _ in range(len(self.suspects) - _MOST_SUSPECTS):
            del self.suspects[next(iter(self.suspects))]

    def recall(self, key: LeaseKey, toll: Toll) -> None:
        """What its row says."""
        if toll != NOTHING and key not in self.tolls:
            self.tolls[key] = toll
            self.changes += 1
            self.suspect([key])

    def acquit(self, key: LeaseKey) -> None:
        """No worker will die of it any more: it is over, or given up."""
        if self.tolls.pop(key, None):
            self.changes += 1
        self.suspects.pop(key, None)
        self._counted.pop(key, None)

    def forget(self, project: str) -> None:
        """The project is gone."""
        for key in [key for key in (*self.tolls, *self.suspects) if key[0] == project]:
            self.acquit(key)

    def take_counted(self) -> list[LeaseKey]:
        """What is to be written into rows: keys whose toll changed since the last call."""
        counted, self._counted = list(self._counted), {}
        return counted

    def _set(self, key: LeaseKey, toll: Toll) -> None:
        self._counted[key] = None
        self.changes += 1
        self.tolls[key] = toll
        if toll == NOTHING:
            del self.tolls[key]
