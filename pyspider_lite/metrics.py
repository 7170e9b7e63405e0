"""The text of `/metrics`, for Prometheus. The only file that knows its library; `health` imports it when somebody wants a port."""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

import pyspider_lite
from pyspider_lite import outages
from pyspider_lite.readings import Reading

_PREFIX = "pyspider_lite_"


def text_of(role: str, readings: Callable[[], Iterable[Reading]]) -> Callable[[], bytes]:
    """What gives the text: these numbers, those of the process (CPU, memory, files), and what it waits for."""
    registry = CollectorRegistry()
    registry.register(_Collector(role, readings))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


class _Collector(Collector):
    """Reads the live objects when somebody asks; the hot paths know nothing of it."""

    def __init__(self, role: str, readings: Callable[[], Iterable[Reading]]) -> None:
        self._role = role
        self._readings = readings

    def collect(self) -> Iterator[Metric]:
        labels = {"role": self._role, "version": pyspider_lite.__version__}
        yield _family(Reading("info", "What this process is", {}), {tuple(labels.values()): 1.0}, list(labels))
        since = {where: time.time() - since for where, since in outages.waiting().items()}
        yield _metric(Reading("waiting_seconds", "How long what cannot be reached is away", since, "where"))
        for reading in self._readings():
            yield _metric(reading)


def _metric(reading: Reading) -> Metric:
    labels = [reading.label] if reading.label else []
    return _family(reading, {(value,) if labels else (): number for value, number in reading.values.items()}, labels)


def _family(reading: Reading, values: Mapping[tuple[str, ...], float], labels: list[str]) -> Metric:
    kind = CounterMetricFamily if reading.counter else GaugeMetricFamily
    family = kind(_PREFIX + reading.name, reading.help, labels=labels)
    for value, number in values.items():
        family.add_metric(value, number)
    return family
