"""The keys that are known to be stored, so that the nine follow-ups of ten that were met before cost no query. Exact, bounded,
filled only after a commit (design, section 5). Pure."""


class KnownKeys:
    """Taskids by project; at most ``limit`` in all, the oldest of the fullest project go first."""

    def __init__(self, limit: int = 1_000_000) -> None:
        self._limit = limit
        self._size = 0
        #: dicts keep the order of insertion
        self._projects: dict[str, dict[str, None]] = {}

    def __len__(self) -> int:
        return self._size

    def known(self, project: str) -> dict[str, None] | set[str]:
        """The taskids known of a project; to be looked up in, not to be changed."""
        return self._projects.get(project) or _NONE

    def add(self, project: str, taskids: set[str]) -> None:
        """These are stored."""
        keys = self._projects.setdefault(project, {})
        before = len(keys)
        keys.update(dict.fromkeys(taskids))
        self._size += len(keys) - before
        while self._size > self._limit:
            self._evict()

    def drop(self, project: str) -> None:
        """The project is gone."""
        self._size -= len(self._projects.pop(project, {}))

    def _evict(self) -> None:
        fullest = max(self._projects.values(), key=len)
        for taskid in list(fullest)[: max(1, len(fullest) // 10)]:
            del fullest[taskid]
            self._size -= 1


_NONE: dict[str, None] = {}
