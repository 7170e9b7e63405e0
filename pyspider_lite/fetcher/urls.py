"""What URL really goes over the wire: hosts in IDNA, no raw spaces or non-ASCII bytes, Location headers resolved.

Pure. Used by `request` for the first URL and by `redirects` for the following ones.
"""

import re
from urllib.parse import urljoin, urlsplit

import idna

#: the usual URL, which can be sent as it is
_PLAIN = re.compile(r"https?://[a-z0-9.-]+(?::(?:[1-9][0-9]{0,3}|[1-5][0-9]{4}))?(?:[/?](?:(?![\"<>\\])[!-~])*)?\Z")
_PARTS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?\Z", re.IGNORECASE | re.DOTALL)
_UNSAFE = re.compile(rb"[\x00-\x20\x7f-\xff\"<>]")
_HOST = re.compile(r"(?:[a-z0-9._-]+|\[[0-9a-f:.]+(?:%[a-z0-9._%-]+)?\])\Z", re.IGNORECASE)
_AROUND = "".join(map(chr, range(0x21)))
_DEFAULT_PORTS = {"http": 80, "https": 443}


class InvalidURL(ValueError):
    """A URL that cannot be fetched; the message says what is wrong with it."""


def sendable(url: str) -> str:
    """``url`` as it can be requested (behaviour F23, mended): only what may not stand in a request is changed.

    Raises InvalidURL when it is no http or https URL, or has no usable host.
    """
    if _PLAIN.match(url):
        return url
    url = url.strip(_AROUND).replace("\t", "").replace("\r", "").replace("\n", "")
    before, mark, after = _cut(url)
    match = _PARTS.match(before.replace("\\", "/") + mark + after)
    if match is None:
        raise InvalidURL(f"only http:// and https:// URLs can be fetched, not {url[:200]!r}")
    scheme, authority, path, query, fragment = match.groups(default="")
    userinfo, at, netloc = authority.rpartition("@")
    return "".join(
        (
            f"{scheme.lower()}://",
            quote(userinfo) + at,
            _netloc(netloc, url),
            quote(path) or "/",
            quote(query),
            quote(fragment),
        )
    )


def resolve(base: str, location: str) -> str:
    """The URL that a Location header means, as browsers read it (demand UA10); ``location`` holds the bytes as Latin-1."""
    raw = location.encode("latin-1", "replace")
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = quote(raw)
    text = text.strip(_AROUND).replace("\t", "").replace("\r", "").replace("\n", "")
    before, mark, after = _cut(text)
    try:
        return sendable(urljoin(base, before.replace("\\", "/") + mark + after))
    except InvalidURL:
        raise
    except ValueError as error:
        raise InvalidURL(f"redirected to {text[:200]!r}, which is no URL: {error}") from error


def quote(part: str | bytes) -> str:
    """``part`` with the bytes that may not stand in a URL as %XX; existing escapes stay."""
    raw = part.encode("utf-8", "surrogatepass") if isinstance(part, str) else part
    return _UNSAFE.sub(lambda match: b"%%%02X" % match.group()[0], raw).decode("ascii")


def origin(url: str) -> tuple[str, str, int]:
    """Scheme, host and port of a sendable URL."""
    parts = urlsplit(url)
    return parts.scheme, (parts.hostname or "").lower(), parts.port or _DEFAULT_PORTS.get(parts.scheme, 0)


def same_site(first: str, url: str) -> bool:
    """May what the user gave for ``first`` (cookies, Authorization) go to ``url`` too? Only to the same origin, or from http
    to https on the default ports of the same host (behaviour X-X10, mended)."""
    old, new = origin(first), origin(url)
    return old == new or (old[1] == new[1] and old[::2] == ("http", 80) and new[::2] == ("https", 443))


def without_password(url: str) -> str:
    """``url`` for a log line."""
    if "@" not in url:
        return url
    return re.sub(r"(://[^/?#@:]*):[^/?#]*@", r"\1:***@", url, count=1)


def _cut(url: str) -> tuple[str, str, str]:
    """The part before the query, where browsers take a backslash for a slash, and the rest."""
    for at, char in enumerate(url):
        if char in "?#":
            return url[:at], char, url[at + 1 :]
    return url, "", ""


def _netloc(netloc: str, url: str) -> str:
    host, colon, port = netloc.rpartition(":") if not netloc.endswith("]") else (netloc, "", "")
    if not colon:
        host, port = netloc, ""
    if port and not (port.isascii() and port.isdigit() and 0 < int(port) < 65536):
        raise InvalidURL(f"{port[:20]!r} is no port number, in {url[:200]!r}")
    return _ascii_host(host, url) + (f":{port}" if port else "")


def _ascii_host(host: str, url: str) -> str:
    if not host.isascii():
        try:
            host = idna.encode(host, uts46=True).decode()
        except (idna.IDNAError, UnicodeError):
            host = _idna_2003(host)
    if not _HOST.match(host):
        raise InvalidURL(f"{host[:100]!r} is no host name, in {url[:200]!r}")
    return host


def _idna_2003(host: str) -> str:
    """Names that IDNA 2008 refuses but registries gave away, such as emoji."""
    try:
        return host.encode("idna").decode()
    except UnicodeError:
        return ""
