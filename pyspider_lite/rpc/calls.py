"""XML-RPC on the wire: bytes to a call, a value to bytes. Used by `server`.

The standard library's reader and writer, with what they leave open closed: no document types (so no entities that grow), no answer
that a client's parser would choke on.
"""

import re
from collections.abc import Callable
from typing import Any, NamedTuple
from xml.parsers import expat
from xmlrpc.client import Fault, Marshaller, Unmarshaller

#: faultCode of what we cannot or will not do; the text says what and why
FAULT = 1
#: elements within each other; each level of a list or a struct takes three. More, and others who read the value would give up
_DEPTH = 300
_HEAD = "<?xml version='1.0'?>\n<methodResponse>"
#: what XML 1.0 has no way to say
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
_INT32, _INT64 = 2**31, 2**63


class Call(NamedTuple):
    """One call."""

    method: str
    arguments: tuple[Any, ...]


def read(body: bytes) -> Call:
    """The call in a request's body. Raises Fault with one sentence for whatever is none."""
    unmarshaller = Unmarshaller(use_builtin_types=True)
    depth = 0

    def start(tag: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > _DEPTH:
            raise ValueError("it is nested too deeply")
        unmarshaller.start(tag, attributes)

    def end(tag: str) -> None:
        nonlocal depth
        depth -= 1
        unmarshaller.end(tag)

    parser = expat.ParserCreate()
    parser.StartElementHandler = start
    parser.EndElementHandler = end
    parser.CharacterDataHandler = unmarshaller.data
    parser.StartDoctypeDeclHandler = _refuse_document_type
    unmarshaller.xml("", None)
    try:
        parser.Parse(body, True)
        arguments, method = unmarshaller.close(), unmarshaller.getmethodname()
    except Exception as error:  # of the parser, or of a number, date or nesting that is none
        raise Fault(FAULT, f"this is no XML-RPC call: {_one_line(error)}") from None
    if not method:
        raise Fault(FAULT, "this is no XML-RPC call: it names no method")
    return Call(method, arguments)


def answer(value: Any) -> bytes:
    """The body that says ``value``. Raises Fault for what XML-RPC has no type for."""
    try:
        return _document(_Marshaller("utf-8", allow_none=True).dumps((value,)))
    except Exception as error:
        raise Fault(FAULT, f"the answer cannot be sent: {_one_line(error)}") from None


def fault(error: Fault) -> bytes:
    """The body that says that the call failed."""
    return _document(_Marshaller("utf-8", allow_none=True).dumps(error))


def _dump_int(self: Marshaller, value: Any, write: Callable[[str], object]) -> None:
    """Above 32 bits as i8, above 64 as a double."""
    if not -_INT64 <= value < _INT64:
        self.dump_double(float(value), write)
        return
    tag = "int" if -_INT32 <= value < _INT32 else "i8"
    write(f"<value><{tag}>{value:d}</{tag}></value>\n")


def _dump_text(self: Marshaller, value: Any, write: Callable[[str], object]) -> None:
    self.dump_unicode(_NOT_XML.sub("\ufffd", value), write)


def _dump_struct(self: Marshaller, value: Any, write: Callable[[str], object]) -> None:
    self.dump_struct({_NOT_XML.sub("\ufffd", key): part for key, part in value.items()}, write)


class _Marshaller(Marshaller):
    """Whatever we send, a client's parser can read."""

    dispatch = {**Marshaller.dispatch, int: _dump_int, str: _dump_text, dict: _dump_struct}


def _document(value: str) -> bytes:
    return f"{_HEAD}\n{value}</methodResponse>\n".encode()


def _refuse_document_type(*declared: object) -> None:
    raise ValueError("a document type is not allowed")


def _one_line(error: Exception) -> str:
    return " ".join(f"{error}".split())[:200] or type(error).__name__
