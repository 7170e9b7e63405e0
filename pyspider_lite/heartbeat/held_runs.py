"""Which runs a worker holds, by the batch that each came in."""

from collections.abc import Iterable, Iterator

from pyspider_lite.models.names import RunKey


class HeldRuns:
    """A run is held once, in the newest batch that brought it. Takes no lock: `Heartbeat` changes it under its own."""

    def __init__(self) -> None:
        self._batches: dict[str, dict[RunKey, None]] = {}
        self._batch_of: dict[RunKey, str] = {}

    def __len__(self) -> int:
        return len(self._batch_of)

    def __iter__(self) -> Iterator[RunKey]:
        return iter(self._batch_of)

    def __contains__(self, run: RunKey) -> bool:
        return run in self._batch_of

    def add(self, batch: str, runs: Iterable[RunKey]) -> None:
        """They came in this batch."""
        for run in runs:
            self._drop(run)
            self._batches.setdefault(batch, {})[run] = None
            self._batch_of[run] = batch

    def drop(self, runs: Iterable[RunKey]) -> None:
        """They are no longer held; those that were not, still are not."""
        for run in runs:
            self._drop(run)

    def outside(self, batch: str, runs: Iterable[RunKey]) -> list[RunKey]:
        """Those of the runs that did not come in this batch last."""
        return [run for run in runs if self._batch_of.get(run) != batch]

    def by_batch(self) -> dict[str, list[RunKey]]:
        """As beats say it."""
        return {batch: list(runs) for batch, runs in self._batches.items()}

    def _drop(self, run: RunKey) -> None:
        batch = self._batch_of.pop(run, None)
        if batch is None:
            return
        runs = self._batches[batch]
        del runs[run]
        if not runs:
            del self._batches[batch]
