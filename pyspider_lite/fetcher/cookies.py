"""Cookies along one chain of redirects (behaviour F19, RFC 6265): what to send to which host, and what the response shows.

Pure but for the wall clock it is told. Nothing lives longer than the fetch. Used by `redirects`.
"""

from email.utils import parsedate_to_datetime
from typing import NamedTuple
from urllib.parse import urlsplit

from pyspider_lite.fetcher.urls import same_site


class Cookie(NamedTuple):
    """One cookie that a server has set."""

    name: str
    value: str
    domain: str
    #: only for exactly this host
    host_only: bool
    path: str
    secure: bool


class CookieJar:
    """The user's cookies, which go to the site first asked only, and those set on the way, which go where they belong."""

    def __init__(self, url: str, given: dict[str, str]) -> None:
        self._first = url
        self._given = given
        self._set: dict[tuple[str, str, str], Cookie] = {}

    def __bool__(self) -> bool:
        return bool(self._given or self._set)

    def header(self, url: str) -> str:
        """The value of the Cookie header for a request to ``url``, "" for none."""
        sent = dict(self._given) if self._given and same_site(self._first, url) else {}
        if self._set:
            parts = urlsplit(url)
            host, path = (parts.hostname or "").lower(), parts.path or "/"
            # longer paths win, as they come first in RFC 6265
            for cookie in sorted(self._set.values(), key=lambda cookie: len(cookie.path)):
                if _belongs(cookie, host, path, parts.scheme == "https"):
                    sent[cookie.name] = cookie.value
        return "; ".join(f"{name}={value}" if name else value for name, value in sent.items())

    def store(self, url: str, lines: list[str], now: float) -> dict[str, str]:
        """Take Set-Cookie header values of an answer from ``url``; returns what they set. ``now`` is Unix time."""
        parts = urlsplit(url)
        host, path = (parts.hostname or "").lower(), parts.path or "/"
        accepted = {}
        for line in lines:
            cookie, alive = parse(line, host, path, now)
            if cookie is None:
                continue
            key = (cookie.domain, cookie.path, cookie.name)
            if alive:
                self._set[key] = cookie
                accepted[cookie.name] = cookie.value
            else:
                self._set.pop(key, None)
        return accepted

    def shown(self) -> dict[str, str]:
        """What `response.cookies` holds: the request's cookies and the response's (behaviour R1, X-K9)."""
        shown = dict(self._given)
        for cookie in self._set.values():
            shown[cookie.name] = cookie.value
        return shown


def parse_cookie_header(text: str) -> dict[str, str]:
    """A Cookie header as the user wrote it; values stay as they are, with their quotes."""
    cookies = {}
    for pair in text.split(";"):
        name, equals, value = pair.strip().partition("=")
        if equals:
            cookies[name.strip()] = value.strip()
    return cookies


def parse(line: str, host: str, path: str, now: float) -> tuple[Cookie | None, bool]:
    """One Set-Cookie value from ``host``: the cookie (None if that host may not set it) and whether it still lives."""
    pair, _, rest = line.partition(";")
    name, equals, value = pair.partition("=")
    if not equals or not (name.strip() or value.strip()):
        return None, False
    attributes = {}
    for attribute in rest.split(";") if rest else ():
        key, _, text = attribute.partition("=")
        attributes[key.strip().lower()] = text.strip()
    domain = attributes.get("domain", "").lstrip(".").lower()
    if domain and domain != host and not ("." in domain and _below(host, domain)):
        return None, False
    own_path = attributes.get("path", "")
    cookie = Cookie(
        name=name.strip(),
        value=value.strip(),
        domain=domain or host,
        host_only=not domain,
        path=own_path if own_path.startswith("/") else path[: path.rfind("/")] or "/",
        secure="secure" in attributes,
    )
    return cookie, _alive(attributes, now)


def _alive(attributes: dict[str, str], now: float) -> bool:
    if "max-age" in attributes:
        try:
            return int(attributes["max-age"]) > 0
        except ValueError:
            pass
    if "expires" in attributes:
        try:
            return parsedate_to_datetime(attributes["expires"]).timestamp() > now
        except (ValueError, OverflowError):
            pass
    return True


def _below(host: str, domain: str) -> bool:
    # an address has no subdomains
    return host.endswith("." + domain) and not host.replace(".", "").isdigit()


def _belongs(cookie: Cookie, host: str, path: str, https: bool) -> bool:
    if cookie.secure and not https:
        return False
    if host != cookie.domain and (cookie.host_only or not _below(host, cookie.domain)):
        return False
    return path == cookie.path or path.startswith(cookie.path if cookie.path.endswith("/") else cookie.path + "/")
