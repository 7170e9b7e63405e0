"""One played worker: the beats, the queue of orders and the work queues of an idle worker of its role, each on a connection of its own."""

from collections.abc import Mapping
from typing import Any, NoReturn

from pyspider_lite import assembly
from pyspider_lite.consumer import Consumer
from pyspider_lite.fetcher.gauge import Gauge
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.models.batch import PageBatch, ResultBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.settings import Settings

#: what workers of each role wait for
_INBOUND: Mapping[Role, Mapping[QueueName, type[Any]]] = {
    Role.FETCHER: {QueueName.TO_FETCHER: TaskBatch},
    Role.PROCESSOR: {QueueName.CONTROL: PageBatch, QueueName.TO_PROCESSOR: PageBatch},
    Role.RESULT_WORKER: {QueueName.RESULTS: ResultBatch},
}
#: processors that are known to a played fetcher: it looks at the queue before them, as a real one, and never has to wait
_MANY = 1_000


class IdleWorker:
    """Beats, and waits for orders and work, from `start` to the end of the process."""

    def __init__(self, settings: Settings, role: Role) -> None:
        self._role = role
        info = WorkerInfo.make(role, settings.fetcher.poolsize if role == Role.FETCHER else 1, settings.digest)

        def connect_orders() -> MessageQueue:
            return assembly.connect_orders(settings, info.worker)

        self._heartbeat = Heartbeat(info, assembly.connector(settings, QueueName.STATUS), orders=connect_orders)
        self._heartbeat.obey(self)
        gauge = Gauge(assembly.connector(settings, QueueName.TO_PROCESSOR)) if role == Role.FETCHER else None

        def room(seconds: float) -> bool:
            return gauge is None or gauge.keeps_up(_MANY)

        self._consumers = [
            Consumer(
                assembly.connector(settings, queue),
                kind,
                self._deliver,
                broken=self._heartbeat.broken,
                room=room,
                name=queue,
            )
            for queue, kind in _INBOUND[role].items()
        ]

    def start(self) -> None:
        """Be idle."""
        self._heartbeat.start()
        for consumer in self._consumers:
            consumer.start()

    def _deliver(self, batch: Any) -> NoReturn:
        raise NotImplementedError(f"a played {self._role} does no work")

    # --- orders, of which nobody gives any ---

    def pause(self) -> None:
        """As `orders.Ordered`."""

    def drain(self) -> None:
        """As `orders.Ordered`."""

    def resume(self) -> None:
        """As `orders.Ordered`."""

    def stop(self) -> None:
        """As `orders.Ordered`."""
