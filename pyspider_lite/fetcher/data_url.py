"""data: URLs (RFC 2397; behaviour F28 with its two mends)."""

import base64
import binascii
import codecs
from urllib.parse import unquote, unquote_to_bytes

from pyspider_lite.fetcher.urls import InvalidURL


def decode(url: str) -> bytes | str:
    """The content of a data: URL: str, but bytes when it is base64 without a charset (as in pyspider).

    The first comma ends the header (pyspider took the last one), and a charset is honoured with and without base64.
    """
    header, comma, data = url[len("data:") :].partition(",")
    if not comma:
        raise InvalidURL(f"a data: URL needs a comma before its data: {url[:100]!r}")
    parameters = [part.strip() for part in header.split(";")[1:]]
    charset = next((p[len("charset=") :].strip("\"' ") for p in parameters if p.lower().startswith("charset=")), None)
    if charset is not None:
        _check(charset)
    if any(parameter.lower() == "base64" for parameter in parameters):
        content = _from_base64(unquote_to_bytes(data))
        return content if charset is None else content.decode(charset, "replace")
    if charset is None:
        return unquote(data)
    return unquote_to_bytes(data).decode(charset, "replace")


def _check(charset: str) -> None:
    try:
        known = codecs.lookup(charset)._is_text_encoding
    except (LookupError, ValueError):
        known = False
    if not known:
        raise InvalidURL(f"unknown charset {charset[:50]!r} in a data: URL")


def _from_base64(data: bytes) -> bytes:
    data = b"".join(data.split())
    try:
        return base64.b64decode(data + b"=" * (-len(data) % 4), validate=True)
    except binascii.Error as error:
        raise InvalidURL(f"a data: URL says base64, but its data is not: {error}") from error
