"""Several runs of several subjects, one after the other in each round (A B A B), so that what else the machine does meets all alike;
then medians, and ratios within each round. `play` runs, the rest is pure."""

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pyspider_lite.bench.suite import SuiteEnded

Figures = dict[str, Any]
#: what no medians are made of
_OF_ONE_RUN = frozenset({"round", "processes"})


class Subject(NamedTuple):
    """Something to be measured; ``measure`` gives its figures with ``problems``."""

    name: str
    measure: Callable[[int], Figures]


class Spread(NamedTuple):
    """Of the runs of one subject, or of the ratios of two."""

    low: float
    median: float
    high: float

    def __str__(self) -> str:
        return f"{self.median:.4g}" + (f" ({self.low:.4g} to {self.high:.4g})" if self.low < self.high else "")


def play(subjects: Sequence[Subject], rounds: int, show: Callable[[Figures], None]) -> list[Figures]:
    """The figures of all runs, each with its round."""
    runs = []
    for number in range(1, rounds + 1):
        for subject in subjects:
            try:
                measured = subject.measure(number)
            except SuiteEnded as error:
                measured = {"problems": str(error)}
            figures = {**measured, "name": subject.name, "round": number}
            runs.append(figures)
            show(figures)
    return runs


def spread(values: Iterable[float]) -> Spread:
    """Of at least one value."""
    numbers = sorted(values)
    return Spread(numbers[0], statistics.median(numbers), numbers[-1])


def summary(runs: Sequence[Figures]) -> dict[str, dict[str, Spread]]:
    """Subject -> lowest, median and highest value of each number that all of its runs have."""
    result = {}
    for name in dict.fromkeys(run["name"] for run in runs):
        flat = [_flat(run) for run in runs if run["name"] == name]
        shared = [key for key in flat[0] if all(key in one for one in flat)]
        result[name] = {key: spread(one[key] for one in flat) for key in shared}
    return result


def _flat(run: Figures) -> dict[str, float]:
    numbers: dict[str, float] = {}
    for key, value in run.items():
        if isinstance(value, dict) and key not in _OF_ONE_RUN:
            numbers |= {f"{key}.{name}": number for name, number in value.items()}
        elif isinstance(value, int | float) and key not in _OF_ONE_RUN:
            numbers[key] = value
    return numbers


def ratio(runs: Sequence[Figures], ours: str, peer: str, key: str = "pages_per_s") -> Spread | None:
    """How often the peer's number goes into ours, round by round; None if no round has both."""
    values: dict[str, Mapping[int, float]] = {
        name: {run["round"]: run[key] for run in runs if run["name"] == name and key in run} for name in (ours, peer)
    }
    ratios = [values[ours][number] / values[peer][number] for number in values[ours] if values[peer].get(number)]
    return spread(ratios) if ratios else None


def lines(runs: Sequence[Figures]) -> list[str]:
    """The summary for people."""
    text = []
    for name, numbers in summary(runs).items():
        text.append(f"{name}: median (lowest to highest) of {sum(run['name'] == name for run in runs)}")
        text += [f"    {key.replace('_', ' '):40} {value}" for key, value in numbers.items()]
    return text
