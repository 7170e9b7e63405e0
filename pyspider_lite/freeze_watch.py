"""Notices that this process stood still. Used by `heartbeat`."""

import logging
import threading
import time

logger = logging.getLogger(__name__)

#: a process that slept through this many intervals was frozen: it is dead for the scheduler
_FROZEN_INTERVALS = 3

#: goes on while the machine is suspended, where there is such a clock
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class FreezeWatch(threading.Thread):
    """Sleeps, and notes when it slept much longer than it asked for. A thread of its own: the sender may wait for the broker."""

    def __init__(self, interval: float) -> None:
        super().__init__(name="freeze-watch", daemon=True)
        self._interval = interval
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._woke = time.clock_gettime(_CLOCK)
        self._frozen = False

    def run(self) -> None:
        self._woke = time.clock_gettime(_CLOCK)
        while not self._ended.wait(self._interval):
            self._look(awake=True)

    def take(self) -> bool:
        """Whether there was a freeze that nobody was told of; looks itself, because the asker may wake up before this thread."""
        if self.is_alive():
            self._look(awake=False)
        with self._lock:
            frozen, self._frozen = self._frozen, False
        return frozen

    def stop(self) -> None:
        self._ended.set()

    def _look(self, awake: bool) -> None:
        with self._lock:
            now = time.clock_gettime(_CLOCK)
            gap = now - self._woke
            frozen = gap > _FROZEN_INTERVALS * self._interval
            self._frozen |= frozen
            if frozen or awake:
                self._woke = now
        if frozen:
            logger.warning("this process stood still for %.1f s", gap)
