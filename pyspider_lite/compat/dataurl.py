"""What scripts import from ``pyspider.libs.dataurl`` (behaviour F28, F29)."""

from base64 import b64decode, b64encode
from urllib.parse import quote, unquote, unquote_to_bytes


def encode(data: str | bytes, mime_type: str = "", charset: str = "utf-8", base64: bool = True) -> str:
    """A ``data:`` URL with this content."""
    given = data.encode(charset) if isinstance(data, str) else data
    head = ["data:", mime_type]
    if isinstance(data, str) and charset:
        head.append(f";charset={charset}")
    if base64:
        return "".join([*head, ";base64,", b64encode(given).decode()])
    return "".join([*head, ",", quote(given)])


def decode(url: str) -> str | bytes:
    """What `encode` was given: str, or bytes when it is base64 without a charset."""
    if not url.startswith("data:"):
        raise ValueError(f"not a data: URL: {url[:100]!r}")
    head, comma, data = url.removeprefix("data:").partition(",")
    if not comma:
        raise ValueError(f"a data: URL needs a comma before its data: {url[:100]!r}")
    parameters = [part.strip() for part in head.split(";")[1:]]
    charset = next((part.removeprefix("charset=") for part in parameters if part.startswith("charset=")), "")
    if "base64" in parameters:
        content = b64decode(unquote_to_bytes(data))
        return content.decode(charset) if charset else content
    return unquote(data, charset or "utf-8")
