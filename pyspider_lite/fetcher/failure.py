"""The one exception inside the fetcher: a fetch that gave no answer. `fetch.py` turns it into a response of status 599."""


class FetchFailed(Exception):
    """Why a fetch has no answer: a stable word for programs and a sentence for people.

    ``kind`` is one of those listed at `FetchResponse.error_kind`; ``status`` is 599, but for robots.txt (403).
    """

    def __init__(self, kind: str, message: str, *, status: int = 599, timings: dict[str, float] | None = None) -> None:
        super().__init__(message)
        self.kind = kind
        self.message = message
        self.status = status
        #: how far it came, see `FetchResponse.timings`
        self.timings = timings or {}
