"""The part of six that pyspider's scripts use, for where six is not installed: on Python 3 all of it is a spelling."""

import builtins
import urllib.parse
import urllib.request
from collections.abc import Callable, ItemsView, KeysView, ValuesView
from html import parser as html_parser
from http import client as http_client
from http import cookiejar as http_cookiejar
from io import BytesIO, StringIO
from typing import Any

PY2, PY3, PY34 = False, True, True
string_types = (str,)
text_type = str
binary_type = bytes
integer_types = (int,)
class_types = (type,)

# six.moves
range = xrange = builtins.range
input = raw_input = builtins.input
map, filter, zip = builtins.map, builtins.filter, builtins.zip
__all__ = [
    *(
        "BytesIO",
        "PY2",
        "PY3",
        "PY34",
        "StringIO",
        "add_metaclass",
        "b",
        "binary_type",
        "class_types",
        "ensure_str",
        "filter",
    ),
    *(
        "html_parser",
        "http_client",
        "http_cookiejar",
        "input",
        "integer_types",
        "iteritems",
        "iterkeys",
        "itervalues",
        "map",
    ),
    *("range", "raw_input", "reraise", "string_types", "text_type", "u", "urllib", "xrange", "zip"),
]


def iteritems(mapping: dict[Any, Any]) -> ItemsView[Any, Any]:
    """``mapping.items()``"""
    return mapping.items()


def iterkeys(mapping: dict[Any, Any]) -> KeysView[Any]:
    """``mapping.keys()``"""
    return mapping.keys()


def itervalues(mapping: dict[Any, Any]) -> ValuesView[Any]:
    """``mapping.values()``"""
    return mapping.values()


def b(text: str) -> bytes:
    """A bytes literal."""
    return text.encode("latin-1")


def u(text: str) -> str:
    """A text literal."""
    return text


def ensure_str(value: str | bytes, encoding: str = "utf-8", errors: str = "strict") -> str:
    """``value`` as str."""
    return value.decode(encoding, errors) if isinstance(value, bytes) else value


def reraise(kind: type[BaseException], value: BaseException | None, traceback: Any = None) -> None:
    """Raise ``value`` with the traceback."""
    raise (value if value is not None else kind()).with_traceback(traceback)


def add_metaclass(metaclass: type) -> Callable[[type], type]:
    """A class decorator that makes the class anew with the metaclass."""

    def decorate(cls: type) -> type:
        skipped = ("__dict__", "__weakref__")
        made: type = metaclass(cls.__name__, cls.__bases__, {k: v for k, v in vars(cls).items() if k not in skipped})
        return made

    return decorate
