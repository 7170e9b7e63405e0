"""What a simulation saw, as figures and as a table. Pure."""

import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from msgspec import Struct, field

Figures = dict[str, Any]


class Sample(Struct, frozen=True):
    """How things stood at a moment: seconds of the simulation, CPU seconds of the scheduler, pages done and given out so far, steps, messages
    and bytes that it heard so far."""

    at: float
    cpu: float
    done: int
    given: int
    batches: int
    steps: int = 0
    messages: int = 0
    bytes: int = 0


class Tally(Struct):
    """Collected on the way."""

    samples: list[Sample] = field(default_factory=list)
    #: runs in flight, places of fetchers that are taken, messages on status_queue; now and then
    in_flight: list[int] = field(default_factory=list)
    taken: list[int] = field(default_factory=list)
    waiting: list[int] = field(default_factory=list)
    #: CPU seconds of each step
    steps: list[float] = field(default_factory=list)
    #: seconds from newtask_queue to scheduler2fetcher
    latencies: list[float] = field(default_factory=list)

    def figures(self, pages: int, places: int) -> Figures:
        """Of the middle of the run, from a tenth of the ``pages`` on to nine tenths; ``places``: of all fetchers."""
        begin = next(sample for sample in self.samples if sample.done >= pages * 0.1)
        end = next(sample for sample in self.samples if sample.done >= min(pages * 0.9, self.samples[-1].done))
        seconds, done, cpu = end.at - begin.at, max(1, end.done - begin.done), end.cpu - begin.cpu
        found: Figures = {
            "pages_per_s": round(done / seconds, 1) if seconds else 0.0,
            "cpu_ms_page": round(1000 * cpu / done, 3),
            "cpu_percent": round(100 * cpu / seconds, 1) if seconds else 0.0,
            "pages_per_cpu_s": round(done / cpu) if cpu else 0,
            "tasks_batch": round((end.given - begin.given) / max(1, end.batches - begin.batches), 1),
            "in_flight": _most(self.in_flight),
            "places_taken_percent": round(100 * statistics.fmean(self.taken) / places, 1) if self.taken else 0.0,
            "latency_ms": _parts(self.latencies),
        }
        if end.steps:
            found |= {
                "steps_per_s": round((end.steps - begin.steps) / seconds, 1) if seconds else 0.0,
                "pages_step": round(done / max(1, end.steps - begin.steps), 1),
                "step_cpu_ms": _parts(self.steps),
                "status_messages_page": round((end.messages - begin.messages) / done, 3),
                "status_bytes_page": round((end.bytes - begin.bytes) / done),
                "status_waiting": _most(self.waiting),
            }
        return found


def shares(done: Sequence[int]) -> dict[str, float]:
    """How evenly work was spread: the least and the most that one did, in parts of the median."""
    middle = statistics.median(done) or 1
    return {"least": round(min(done) / middle, 2), "most": round(max(done) / middle, 2)}


def lines(figures: Figures) -> list[str]:
    """A table for people, in Markdown."""
    rows = [(name.replace("_", " "), value) for name, value in figures.items() if name != "problems"]
    return ["| what | |", "|---|---|", *(f"| {name} | {_shown(value)} |" for name, value in rows)]


def _shown(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {_shown(one)}" for name, one in value.items())
    return f"{value:,}" if isinstance(value, int | float) else str(value)


def _most(values: Sequence[int]) -> dict[str, float]:
    return {"median": round(statistics.median(values)), "most": max(values)} if values else {}


def _parts(seconds: Iterable[float]) -> dict[str, float]:
    """Median and 99th percentile, in ms."""
    numbers = sorted(seconds)
    if not numbers:
        return {}
    return {
        "p50": round(1000 * numbers[len(numbers) // 2], 1),
        "p99": round(1000 * numbers[min(len(numbers) - 1, len(numbers) * 99 // 100)], 1),
    }
