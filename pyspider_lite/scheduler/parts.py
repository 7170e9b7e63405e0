"""Reports that travel in parts: the last one, which ends the run, is held back until all the others are in (design, section 4).
Pure."""

from pyspider_lite.models.names import RunKey
from pyspider_lite.models.report import Report


class Parts:
    """The parts of runs in flight."""

    def __init__(self) -> None:
        self._seen: dict[RunKey, set[int]] = {}
        self._last: dict[RunKey, Report] = {}

    def take(self, report: Report) -> list[Report]:
        """What may be committed now that this came: the part itself, and the last one if it waited for this."""
        if report.parts == 1:
            # of a run that failed, its first parts may have gone before
            self.drop(report.key)
            return [report]
        if report.parts:
            self._last[report.key] = report
            return self._complete(report.key)
        self._seen.setdefault(report.key, set()).add(report.part)
        return [report, *self._complete(report.key)]

    def drop(self, run: RunKey) -> None:
        """The run is lost, it will send all its parts again."""
        self._seen.pop(run, None)
        self._last.pop(run, None)

    def forget(self, project: str) -> None:
        """The project is gone."""
        for run in [run for run in (*self._seen, *self._last) if run[0] == project]:
            self.drop(run)

    def _complete(self, run: RunKey) -> list[Report]:
        last = self._last.get(run)
        if last is None or len(self._seen.get(run, ())) < last.parts - 1:
            return []
        self.drop(run)
        return [last]
