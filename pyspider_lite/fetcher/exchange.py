"""What goes into the HTTP engine and what comes out of it: one request, one answer."""

from collections.abc import Sequence

from msgspec import Struct

from pyspider_lite.fetcher.request import Proxy


class Exchange(Struct, frozen=True, kw_only=True):
    """One request to send; no redirects."""

    method: str
    url: str
    headers: Sequence[str]
    body: bytes | None = None
    proxy: Proxy | None = None
    timeout: float = 120.0
    connect_timeout: float = 20.0
    validate_cert: bool = True


class Answer(Struct, frozen=True):
    """What came back: header lines as they came (Latin-1), the body as it came."""

    status: int
    reason: str
    headers: list[tuple[str, str]]
    body: bytes
    timings: dict[str, float]
