"""Whether processors keep up with the pages: looks at the length of fetcher2processor (demand UA30). Used by `fetcher` on its
consumer's thread."""

import time

from pyspider_lite.message_queue.connection import Connect, Connection

#: page batches that may wait for each processor
_BATCHES_A_PROCESSOR = 4
#: seconds between two looks
LOOK_EACH = 0.05


class Gauge:
    """A connection of its own to the queue behind."""

    def __init__(self, connect: Connect) -> None:
        self._connection = Connection(connect, "fetcher2processor (its length)")
        self._looked = 0.0

    def keeps_up(self, processors: int) -> bool:
        """So many processors have no more before them than they should; False also while the queue cannot be reached."""
        now = time.monotonic()
        if now - self._looked < LOOK_EACH:
            return True
        length = self._connection.call(lambda queue: queue.qsize())
        if length is None or length > _BATCHES_A_PROCESSOR * processors:
            return False
        self._looked = now
        return True

    def stop(self) -> None:
        """Wait for a queue that is away no longer. From any thread."""
        self._connection.end(0)

    def close(self) -> None:
        """End the connection."""
        self._connection.close()
