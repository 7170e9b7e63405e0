"""URLs and bodies as ``self.crawl`` puts them into a task. Task ids are made from these URLs, so nothing here may change."""

import hashlib
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlparse, urlunparse

import requests

#: length of a URL from which it is refused, before ``params`` are added (behaviour H41)
MAX_URL_LENGTH = 1024

_ASCII = "".join(map(chr, range(128)))
# A URL that `build_url` would give back as it is. Nearly all that pages link to are.
_LABEL = r"[A-Za-z0-9_-]{1,63}"
_NORMAL = re.compile(
    rf"https?://(?:{_LABEL}\.)*{_LABEL}(?::\d+)?"
    r"/[!-\"$-:<->@-~]*"  # printable ASCII but for ; ? #
    r"(?:\?[!-\"$-~]+)?(?:#[!-~]+)?"
)


def md5string(text: str | bytes) -> str:
    """The hexadecimal MD5 of the UTF-8 form of ``text``."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def quote_chinese(url: str, encoding: str = "utf-8") -> str:
    """``url`` with each byte that is not ASCII %-escaped; everything else, escapes included, stays (behaviour H42)."""
    return url if url.isascii() else quote(url, safe=_ASCII, encoding=encoding)


def build_url(url: str, params: Any = None) -> str:
    """The URL of a task: stripped, host in IDNA, path at least ``/``, ``params`` appended, non-ASCII escaped (H41, H42)."""
    if not isinstance(url, str):
        raise TypeError(f"crawl(): a URL must be a str, not {url!r:.100}")
    if len(url) >= MAX_URL_LENGTH:
        raise AssertionError(f"Maximum ({MAX_URL_LENGTH}) URL length error.")
    url = str(url).strip()
    if not params and _NORMAL.fullmatch(url):
        return url
    try:
        scheme, netloc, path, path_params, query, fragment = urlparse(url)
        userinfo, at, host = netloc.rpartition("@")
        netloc = userinfo + at + host.encode("idna").decode()
    except ValueError as error:
        kind = UnicodeError if isinstance(error, UnicodeError) else ValueError
        raise kind(f"crawl(): {url[:200]!r} is not a URL: {error}") from error
    added = encode_form(params) if params else None
    if isinstance(added, bytes):
        added = added.decode()
    if added:
        if not isinstance(added, str):
            raise TypeError(f"params must be a dict, a list of pairs or a str, not {type(params).__name__}")
        query = f"{query}&{added}" if query else added
    return quote_chinese(urlunparse((scheme, netloc, path or "/", path_params, query, fragment)))


def encode_form(data: Any) -> Any:
    """A dict or list of pairs as a form is encoded by requests; str, bytes and what is no container stay as they are."""
    if isinstance(data, str | bytes) or not hasattr(data, "__iter__"):
        return data
    pairs: list[tuple[Any, Any]] = []
    for key, values in data.items() if isinstance(data, Mapping) else data:
        if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
            values = [values]
        pairs.extend((key, value) for value in values if value is not None)
    return urlencode(pairs)


def encode_multipart(files: Any, data: Any) -> tuple[str, bytes]:
    """Content type and body of an upload; ``files`` as in requests, or ``{field: {filename: content}}`` (behaviour H47)."""
    if isinstance(files, Mapping):
        files = {
            field: next(iter(given.items())) if isinstance(given, Mapping) and given else given
            for field, given in files.items()
        }
    prepared = requests.Request("POST", "http://localhost/", files=files, data=data).prepare()
    body = prepared.body or b""
    return str(prepared.headers["Content-Type"]), body if isinstance(body, bytes) else body.encode()
