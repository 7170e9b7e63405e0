"""Over which runs workers died, and which may have killed them without anybody having seen it. Pure; `leases` counts what it sees,
`deaths` what was found in rows and in records that dead processors left."""

from collections.abc import Iterable

#: lease key: project and taskid (or control id)
LeaseKey = tuple[str, str]

#: silent workers that are remembered in case they come back
MOST_SILENT = 1_000
#: suspects that are remembered
_MOST_SUSPECTS = 10_000


class Blame:
    """Deaths and suspects, by lease key."""

    def __init__(self) -> None:
        #: workers that died over it, or had to end before it did
        self.deaths: dict[LeaseKey, int] = {}
        #: what was in the hands of a processor that died, until it is over: that may have died of any of them before it could say
        #: which one it ran. They are run one at a time, and each is named before it begins (docs/architecture.md)
        self.suspects: dict[LeaseKey, None] = {}
        #: suspects of a death that the leader died with: all that ran may die again, so only one of them is in flight at a time
        self.apart: dict[LeaseKey, None] = {}
        #: keys whose number of deaths is another than in their row
        self._counted: dict[LeaseKey, None] = {}
        #: silent workers that a death was counted for, and over which task
        self._silent: dict[str, LeaseKey] = {}

    def count(self, key: LeaseKey) -> int:
        """A worker died over it; how many have by now."""
        self.deaths[key] = self.deaths.get(key, 0) + 1
        self._counted[key] = None
        return self.deaths[key]

    def count_silent(self, worker: str, key: LeaseKey) -> None:
        """A worker fell silent while it ran this; `absolve` takes it back."""
        self.count(key)
        self._silent[worker] = key
        if len(self._silent) > MOST_SILENT:
            del self._silent[next(iter(self._silent))]

    def absolve(self, worker: str) -> None:
        """It was silent and not dead (frozen, cut off): that is no task's fault."""
        key = self._silent.pop(worker, None)
        if key is not None and (deaths := self.deaths.pop(key, 0)):
            self._counted[key] = None
            if deaths > 1:
                self.deaths[key] = deaths - 1

    def suspect(self, keys: Iterable[LeaseKey]) -> None:
        """Whoever had these may have died of one of them."""
        self.suspects.update(dict.fromkeys(keys))
        for _ in range(len(self.suspects) - _MOST_SUSPECTS):
            del self.suspects[next(iter(self.suspects))]

    def set_apart(self, key: LeaseKey) -> None:
        """It may have killed all that ran on a machine, the scheduler with it."""
        if len(self.apart) < _MOST_SUSPECTS:
            self.suspects[key] = self.apart[key] = None

    def recall(self, key: LeaseKey, deaths: int) -> None:
        """Its row says how many workers died over it."""
        if deaths and key not in self.deaths:
            self.deaths[key] = deaths
            self.suspect([key])

    def acquit(self, key: LeaseKey) -> None:
        """No worker will die of it any more: it is over, or given up."""
        self.deaths.pop(key, None)
        for keys in (self.suspects, self.apart, self._counted):
            keys.pop(key, None)

    def forget(self, project: str) -> None:
        """The project is gone."""
        for key in [key for key in (*self.deaths, *self.suspects) if key[0] == project]:
            self.acquit(key)

    def take_counted(self) -> list[LeaseKey]:
        """What is to be written into rows: keys whose number of deaths changed since the last call."""
        counted, self._counted = list(self._counted), {}
        return counted
