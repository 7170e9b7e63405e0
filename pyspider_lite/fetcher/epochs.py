"""Which batches of tasks are of a scheduler that leads no longer. Pure; used by `fetcher`."""

#: seconds without a batch of a newer epoch after which an older one counts again: the database's clock, from which a taskdb that was made
#: anew counts on, may have been set back
HOLDS = 60.0


class Epochs:
    """The newest epoch seen. What an older leader had ready when it was frozen is dropped: the new one has leased those tasks anew."""

    def __init__(self) -> None:
        self._newest = 0
        self._seen = 0.0

    def outdated(self, epoch: int, now: float) -> bool:
        """Whether a batch of ``epoch`` that came at ``now`` (monotonic, seconds) is to be dropped."""
        if epoch < self._newest and now - self._seen < HOLDS:
            return True
        self._newest, self._seen = epoch, now
        return False
