"""What scripts import from ``pyspider.libs.response``."""

from collections.abc import Mapping
from typing import Any

from pyspider_lite.response import Response, rebuild_response
from pyspider_lite.response.encoding import find_encoding

__all__ = ["Response", "get_encoding", "rebuild_response"]


def get_encoding(headers: Mapping[str, Any], content: bytes) -> str:
    """The encoding of a page by its headers and its body."""
    kind = next((str(value) for name, value in headers.items() if name.lower() == "content-type"), "")
    return find_encoding(content, kind)
