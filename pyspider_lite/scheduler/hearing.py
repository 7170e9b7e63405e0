"""Whether workers can be heard: asked by `daemon` at each turn. While they cannot, time is nobody's death."""

from pyspider_lite.consumer import Consumer
from pyspider_lite.models.batch import StatusBatch

#: seconds without a message, and without having found status_queue empty, after which nothing can be heard: its server hangs, or we do
DEAF_AFTER = 1.5
#: seconds of that after which connections have broken
_BROKEN_AFTER = 4.0


class Hearing:
    """Whether workers can be heard."""

    def __init__(self) -> None:
        self._deaf_since: float | None = None
        self._away = False
        #: they can again, after so long that their connections have broken, too
        self.came_back = False

    def look(self, now: float, status: Consumer[StatusBatch]) -> bool:
        """To be called each turn; True while they cannot be heard."""
        away = status.waiting_since is not None
        deaf = away or now - status.last_seen > DEAF_AFTER
        self.came_back = False
        if deaf:
            self._away |= away
            if self._deaf_since is None:
                self._deaf_since = status.last_seen
        elif self._deaf_since is not None:
            self.came_back = self._away or now - self._deaf_since > _BROKEN_AFTER
            self._deaf_since, self._away = None, False
        return deaf
