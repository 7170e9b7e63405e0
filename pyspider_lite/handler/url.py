"""URLs and bodies as ``self.crawl`` puts them into a task, and the id that is made from them: so nothing here may change.

Called by `crawl` and `BaseHandler.get_taskid`; pyspider's names for these functions are in ``compat``.
"""

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


class BadUrl(ValueError):
    """What was given to ``self.crawl`` is no URL."""


def md5string(text: str | bytes) -> str:
    """The hexadecimal MD5 of the UTF-8 form of ``text``."""
    data = text.encode() if isinstance(text, str) else text
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def request_id(url: str, method: str | None = None, data: str | bytes | None = None) -> str:
    """The identity of a request: the MD5 of the URL for a GET (behaviour H43), else of method, URL and body (demand UA18)."""
    method = str(method or "GET").upper()
    if method == "GET" and not data:
        return md5string(url)
    body = data if isinstance(data, bytes) else str(data or "").encode("utf-8", "surrogatepass")
    return md5string(f"{method} {url}\n".encode() + body)


def quote_chinese(url: str, encoding: str = "utf-8") -> str:
    """``url`` with each byte that is not ASCII %-escaped; everything else, escapes included, stays (behaviour H42)."""
    return url if url.isascii() else quote(url, safe=_ASCII, encoding=encoding)


def build_url(url: object, params: Any = None) -> str:
    """The URL of a task: stripped, host in IDNA, path at least ``/``, ``params`` appended, non-ASCII escaped (H41, H42).

    Bytes are taken for UTF-8. BadUrl says why it is none. TypeError: ``params`` are none.
    """
    if isinstance(url, bytes):
        url = url.decode("utf-8", "replace")
    if not isinstance(url, str):
        raise BadUrl(f"a URL must be a str, not {type(url).__name__}")
    if len(url) >= MAX_URL_LENGTH:
        raise BadUrl(f"Maximum ({MAX_URL_LENGTH}) URL length error.")
    url = str(url).strip()
    if not params and _NORMAL.fullmatch(url):
        return url
    if "\0" in url:
        raise BadUrl(
            "not a URL: there is a NUL in it"
        )  # not every database could store it, and then the whole report would fail
    added = encode_query(params)
    try:
        scheme, netloc, path, path_params, query, fragment = urlparse(url)
        userinfo, at, host = netloc.rpartition("@")
        netloc = userinfo + at + host.encode("idna").decode()
        if added:
            query = f"{query}&{added}" if query else added
        return quote_chinese(urlunparse((scheme, netloc, path or "/", path_params, query, fragment)))
    except ValueError as error:
        raise BadUrl(f"not a URL: {error}") from error


def encode_query(params: Any) -> str:
    """``params`` of a call as the text that is appended to a query."""
    added = encode_form(params) if params else ""
    if isinstance(added, bytes):
        added = added.decode()
    if not isinstance(added, str):
        raise TypeError(f"params must be a dict, a list of pairs or a str, not {type(params).__name__}")
    return added


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
    """Content type and body of an upload; ``files`` as in requests, or ``{field: {filename: content}}`` (behaviour H47).

    The same content gives the same bytes, because the task's id is made from them: so the boundary is made from the content.
    """
    if isinstance(files, Mapping):
        files = {
            field: next(iter(given.items())) if isinstance(given, Mapping) and given else given
            for field, given in files.items()
        }
    prepared = requests.Request("POST", "http://localhost/", files=files, data=data).prepare()
    content_type, body = str(prepared.headers["Content-Type"]), prepared.body or b""
    body = body if isinstance(body, bytes) else body.encode()
    random = content_type.partition("boundary=")[2]
    boundary = md5string(body.replace(random.encode(), b""))
    return content_type.replace(random, boundary), body.replace(random.encode(), boundary.encode())
