"""Orders to one worker (`cluster pause|resume|drain|stop`): a small queue of its own on the broker, at which each worker waits, or
looks into it where waiting is not cheap.

So they reach every role from wherever the broker can be reached, without a port. `heartbeat` looks for the workers, the scheduler's
daemon for itself; `give` is the other end, for the command line.
"""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import Protocol

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage, QueueError
from pyspider_lite.message_queue.base import MessageQueue
from pyspider_lite.message_queue.connection import Backoff, Connect
from pyspider_lite.models.worker import Order, OrderKind

logger = logging.getLogger(__name__)

#: seconds between two looks, where a look is no wait
LOOK_EACH = 1.0
#: seconds after which an order is no longer what anybody wants; a broker may forget an unused queue after as many
MAX_AGE = 60
#: orders taken at once
_MOST = 10
#: seconds for the broker to take an order
_PATIENCE = 5.0


def queue_name(worker: str) -> str:
    """The queue of a worker's orders."""
    return f"orders.{worker}"


def give(queue: MessageQueue, kind: OrderKind) -> None:
    """Put an order onto a worker's queue. Raises QueueError."""
    queue.put(codec.encode(Order(id=secrets.token_hex(8), order=str(kind), time=time.time())), _PATIENCE)


class Ordered(Protocol):
    """A role that follows orders. Each method comes back at once; they may be called from any thread."""

    def pause(self) -> None:
        """Take nothing new; what is in hand is finished."""
        ...

    def drain(self) -> None:
        """As `pause`, and give back what was not started."""
        ...

    def resume(self) -> None:
        """The end of both."""
        ...

    def stop(self) -> None:
        """Finish and return from `run`."""
        ...


def actions_of(role: Ordered) -> dict[str, Callable[[], None]]:
    """What a role does on each order; a user's own class may not know all of them."""
    return {str(kind): getattr(role, kind) for kind in OrderKind if hasattr(role, kind)}


class OrderWatch(threading.Thread):
    """Looks for orders to this process and calls ``actions`` for them, which must not block. A broker that is away is no news here:
    others say it."""

    def __init__(self, connect: Connect, actions: Mapping[str, Callable[[], None]]) -> None:
        super().__init__(name="orders", daemon=True)
        self._connect = connect
        self._actions = actions
        self._queue: MessageQueue | None = None
        self._ending = threading.Event()

    def stop(self) -> None:
        """Follow no more orders; does not wait."""
        self._ending.set()
        if (queue := self._queue) is not None:
            threading.Thread(target=queue.wake, daemon=True).start()

    def run(self) -> None:
        backoff = Backoff(LOOK_EACH, cap=10.0)
        delay = LOOK_EACH
        while not self._ending.wait(delay):
            try:
                waited = self._look()
                backoff.reset()
                delay = 0.0 if waited else LOOK_EACH
            except Exception as error:
                expected = isinstance(error, QueueError)
                logger.debug("orders cannot be looked for: %s", error, exc_info=not expected)
                self._close()
                delay = backoff.next()
        self._close()

    def _look(self) -> bool:
        """True if it waited for an order, as far as that is cheap."""
        if self._queue is None:
            self._queue = self._connect()
        patience = self._queue.patience
        for received in self._queue.get(_MOST, patience):
            try:
                self._follow(codec.decode(received.body, Order))
            except BrokenMessage as error:
                logger.warning("an order was ignored: %s", error)
            except Exception:
                logger.exception("an order could not be followed")
        return patience > 0

    def _follow(self, order: Order) -> None:
        age = time.time() - order.time
        if abs(age) > MAX_AGE:
            logger.warning(
                "the order to %.20s was ignored: by the clocks of the two machines it is %.0f s old", order.order, age
            )
            return
        action = self._actions.get(order.order)
        if action is None:
            known = ", ".join(self._actions)
            logger.warning("the order to %.20s was ignored: this worker follows %s", order.order, known)
            return
        logger.info("ordered to %s (order %.20s)", order.order, order.id)
        action()

    def _close(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
