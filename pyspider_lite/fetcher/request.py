"""What a task asks for: ``task.fetch`` (crawl_config is joined already) as one typed, checked `Request`.

Pure. `fetch.py` calls `build`; every refusal is a ValueError whose sentence names the option.
"""

from functools import lru_cache
from typing import Any
from urllib.parse import unquote, urlencode, urlsplit

from msgspec import Struct

import pyspider_lite
from pyspider_lite import codec
from pyspider_lite.fetcher.cookies import parse_cookie_header
from pyspider_lite.fetcher.decoding import ACCEPT_ENCODING
from pyspider_lite.fetcher.urls import sendable
from pyspider_lite.models.page import Dispatch

DEFAULT_USER_AGENT = f"pyspider_lite/{pyspider_lite.__version__}"

_PROXY_PORTS = {"http": 8080, "https": 443, "socks4": 1080, "socks4a": 1080, "socks5": 1080, "socks5h": 1080}
_TOKEN = frozenset("!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ")


class Defaults(Struct, frozen=True, kw_only=True):
    """What holds where the task says nothing (behaviour F15, H55)."""

    #: "" for our name and version
    user_agent: str = ""
    #: `[user:pass@]host:port` or a URL; "" for none
    proxy: str = ""
    #: seconds for the whole fetch, all redirects included, from its start
    timeout: float = 120.0
    connect_timeout: float = 20.0
    max_redirects: int = 5
    #: what can be decoded
    accept_encoding: str = ACCEPT_ENCODING


class Proxy(Struct, frozen=True):
    """A proxy, its credentials apart from its address."""

    url: str
    user: str = ""
    password: str = ""

    @property
    def masked(self) -> str:
        """For people: without the password."""
        scheme, _, address = self.url.partition("://")
        return f"{scheme}://{self.user}:***@{address}" if self.user else self.url


class Request(Struct, frozen=True, kw_only=True):
    """One HTTP request as the task wants it; header names are canonical, the Cookie header is in ``cookies``."""

    method: str
    url: str
    headers: dict[str, str]
    body: bytes | None
    cookies: dict[str, str]
    proxy: Proxy | None
    timeout: float
    connect_timeout: float
    allow_redirects: bool
    max_redirects: int
    validate_cert: bool
    robots_txt: bool


def build(task: Dispatch, defaults: Defaults) -> Request:
    """The request for this task. Raises ValueError (InvalidURL for the URL) with a sentence for the user."""
    fetch = task.fetch
    body = _body(fetch.get("data"))
    method = _method(fetch.get("method"))
    headers = _headers(fetch.get("headers"))
    cookies = parse_cookie_header(headers.pop("Cookie")) if "Cookie" in headers else {}
    if fetch.get("cookies"):
        cookies.update(_cookies(fetch["cookies"]))
    if "User-Agent" not in headers:
        # crawl() and crawl_config put it into the headers; tasks from elsewhere may not
        headers["User-Agent"] = _header_value(
            "user_agent", fetch.get("user_agent") or defaults.user_agent or DEFAULT_USER_AGENT
        )
    if "Accept-Encoding" not in headers:
        headers["Accept-Encoding"] = defaults.accept_encoding if _flag(fetch, "use_gzip", True) else "identity"
    if method in ("GET", "HEAD"):
        _add_validators(headers, task)
    redirects = fetch.get("max_redirects")
    if redirects is None:
        redirects = defaults.max_redirects
    elif type(redirects) is not int or redirects < 0:
        raise ValueError(f"max_redirects must be a whole number from 0, not {redirects!r}")
    return Request(
        method=method,
        url=sendable(task.url),
        headers=headers,
        body=body,
        cookies=cookies,
        proxy=_proxy(fetch.get("proxy"), defaults.proxy),
        timeout=_seconds(fetch, "timeout", defaults.timeout),
        connect_timeout=_seconds(fetch, "connect_timeout", defaults.connect_timeout),
        allow_redirects=_flag(fetch, "allow_redirects", True),
        max_redirects=redirects,
        validate_cert=_flag(fetch, "validate_cert", True),
        robots_txt=_flag(fetch, "robots_txt", False),
    )


def canonical(name: str) -> str:
    """``x-a`` as ``X-A`` (behaviour F16)."""
    return "-".join([word.capitalize() for word in name.split("-")])


@lru_cache(maxsize=256)
def parse_proxy(text: str) -> Proxy:
    """`[scheme://][user:pass@]host[:port]` (behaviour F17). Raises ValueError, without the password."""
    shown = text.rpartition("@")[2][:100]
    try:
        parts = urlsplit(text if "://" in text else f"http://{text}")
        host, port = parts.hostname, parts.port
        if port == 0:
            raise ValueError
    except ValueError:  # whose text may quote a password
        raise ValueError(f"the proxy {shown!r} is no host:port: a port is a number from 1 to 65535") from None
    if parts.scheme not in _PROXY_PORTS:
        raise ValueError(f"the proxy {shown!r} has the scheme {parts.scheme!r}; known are {', '.join(_PROXY_PORTS)}")
    if not host or set(host) & set(" \t\r\n"):
        raise ValueError(f"the proxy {shown!r} names no host; it must be [user:pass@]host:port")
    host = f"[{host}]" if ":" in host else host
    return Proxy(
        url=f"{parts.scheme}://{host}:{port or _PROXY_PORTS[parts.scheme]}",
        user=unquote(parts.username or ""),
        password=unquote(parts.password or ""),
    )


def _proxy(wanted: Any, default: str) -> Proxy | None:
    """A str is the proxy, what is given but false means none, absent or null means the fetcher's."""
    if isinstance(wanted, str) and wanted:
        return parse_proxy(wanted)
    if wanted is None:
        return parse_proxy(default) if default else None
    if not wanted:
        return None
    raise ValueError(f"proxy must be '[user:pass@]host:port' or False, not {wanted!r}")


def _method(method: Any) -> str:
    if method is None:
        return "GET"
    if not isinstance(method, str) or not method or not _TOKEN.issuperset(method):
        raise ValueError(f"method must be a word such as 'GET', not {method!r}")
    return method.upper()


def _body(data: Any) -> bytes | None:
    """None for no body: also an empty dict is none (behaviour X-F9, mended)."""
    if isinstance(data, str):
        return codec.text_to_bytes(data) or None  # behaviour F2
    if isinstance(data, bytes):
        return data or None
    if not data:
        return None
    if isinstance(data, dict | list):
        try:
            return urlencode(data, doseq=True).encode()
        except TypeError:
            pass
    raise ValueError(f"data must be str, bytes, or a dict or list of pairs for a form, not {type(data).__name__}")


def _headers(given: Any) -> dict[str, str]:
    if not given:
        return {}
    if not isinstance(given, dict):
        raise ValueError(f"headers must be a dict, not {type(given).__name__}")
    headers = {}
    for name, value in given.items():
        if value is None:
            continue
        if not isinstance(name, str) or not name or not _TOKEN.issuperset(name):
            raise ValueError(f"{name!r} in headers is no header name")
        headers[canonical(name)] = _header_value(name, value)
    return headers


def _header_value(name: str, value: Any) -> str:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    elif not isinstance(value, str):
        if not isinstance(value, int | float):
            raise ValueError(f"the header {name} must be str, not {type(value).__name__}")
        value = str(value)
    value = value.strip()
    if "\r" in value or "\n" in value or "\0" in value:
        raise ValueError(f"the header {name} has a line break or NUL inside")
    text: str = value
    return text


def _cookies(given: Any) -> dict[str, str]:
    if not isinstance(given, dict):
        raise ValueError(f"cookies must be a dict, not {type(given).__name__}")
    cookies = {}
    for name, value in given.items():
        if value is None:
            continue
        name, value = str(name), _header_value(f"Cookie: {name}", value)
        if set(name) & set("=; \t\r\n\0") or ";" in value:
            raise ValueError(
                f"the cookie {name!r} has a character that would end it: one of = ; and blanks in its name, ; in its value"
            )
        cookies[name] = value
    return cookies


def _flag(fetch: dict[str, Any], name: str, default: bool) -> bool:
    value = fetch.get(name)
    return default if value is None else bool(value)


def _seconds(fetch: dict[str, Any], name: str, default: float) -> float:
    value = fetch.get(name)
    if value is None:
        return default
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e6:
        raise ValueError(f"{name} must be a positive number of seconds, not {value!r}")
    return float(value)


def _add_validators(headers: dict[str, str], task: Dispatch) -> None:
    """If-None-Match and If-Modified-Since from the last good run (behaviour F18, H55); explicit headers win."""
    fetch = task.fetch
    etag = fetch.get("etag", True)
    modified = fetch.get("last_modified", fetch.get("last_modifed", True))
    stored: dict[str, Any] = {}
    if (etag is True or modified is True) and not task.unconditional and task.track:
        stored = _last_headers(task.track)
    for header, wanted, key in (("If-None-Match", etag, "etag"), ("If-Modified-Since", modified, "last-modified")):
        value = wanted if isinstance(wanted, str) else stored.get(key) if wanted else None
        if value and header not in headers:
            headers[header] = _header_value(header, value)


def _last_headers(track: dict[str, Any]) -> dict[str, Any]:
    """Headers kept of the last run, lower-case names; empty unless it went well."""
    process, fetch = track.get("process"), track.get("fetch")
    if not isinstance(process, dict) or not isinstance(fetch, dict) or not process.get("ok"):
        return {}
    kept = fetch.get("headers")
    return {str(name).lower(): value for name, value in kept.items()} if isinstance(kept, dict) else {}
