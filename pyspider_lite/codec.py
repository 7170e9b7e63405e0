"""How structs become bytes on a queue and text in a column; the only serialiser. Nothing that arrives is ever executed.

A message is ``PSL`` + version byte + flag byte (0 plain, 1 zstd) + msgpack. Whatever does not begin like that, is of another
version, or does not decode into the type asked for, raises `BrokenMessage` with the reason; the consumer keeps it aside.
"""

import base64
import binascii
import re
from typing import Any, TypeVar

import msgspec
import zstandard

from pyspider_lite.errors import BrokenMessage, MessageTooLarge, UnsendableMessage, UnstorableValue

T = TypeVar("T")

VERSION = 1
MAGIC = b"PSL" + bytes([VERSION])
#: messages over this are compressed
COMPRESS_OVER = 8 * 1024
#: no message decodes to more than this; RabbitMQ drops the channel above 16 MiB
MAX_DECODED = 64 * 1024 * 1024
#: no message is sent that is larger than this
MAX_ENCODED = 12 * 1024 * 1024

#: lists and dicts inside each other; whoever reads it again has less stack to do it than whoever wrote it
MAX_DEPTH = 200

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"')
_SQUARE = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS = bytes(code for code in range(256) if code not in b"[]{}")

_PLAIN, _ZSTD = 0, 1
_BASE64_BEGIN, _BASE64_END = "[BASE64-DATA]", "[/BASE64-DATA]"


_BUILTIN: tuple[type[Any], ...] = (str, bytes, int, float, dict, list, tuple, set, frozenset)


def _enc_hook(value: Any) -> Any:
    """Turn what msgspec refuses into what it takes: lxml's and pyquery's str subclasses, above all (style, traps)."""
    for plain in _BUILTIN:
        if isinstance(value, plain):
            return plain(value)
    raise NotImplementedError(f"a {type(value).__name__} cannot be stored")


#: what an encoder raises for values that it has no encoding for
_NO_ENCODING = (TypeError, ValueError, NotImplementedError, OverflowError, RecursionError)
_encoder = msgspec.msgpack.Encoder(enc_hook=_enc_hook)
_json_encoder = msgspec.json.Encoder(enc_hook=_enc_hook)
_decoders: dict[Any, msgspec.msgpack.Decoder[Any]] = {}


def encode(message: msgspec.Struct) -> bytes:
    """One message of a queue as bytes; raises UnsendableMessage for a value that JSON has and messages have not (integers over 64 bits,
    halves of surrogates), MessageTooLarge above 12 MiB, or 64 MiB before compression."""
    try:
        body = _encoder.encode(message)
    except _NO_ENCODING as error:
        raise UnsendableMessage(_cannot_travel(error)) from error
    if len(body) > MAX_DECODED:
        raise MessageTooLarge(f"a message of {len(body)} bytes before compression is over the limit of {MAX_DECODED}")
    if len(body) > COMPRESS_OVER:
        # a compressor of its own each time: they are not safe to share between threads, and cost 20 us
        packed = zstandard.ZstdCompressor(level=1).compress(body)
        encoded = b"".join((MAGIC, bytes([_ZSTD]), packed))
    else:
        encoded = b"".join((MAGIC, bytes([_PLAIN]), body))
    if len(encoded) > MAX_ENCODED:
        raise MessageTooLarge(f"a message of {len(encoded)} bytes is over the limit of {MAX_ENCODED}")
    return encoded


def decode(body: bytes, kind: type[T]) -> T:
    """The message in ``body``; raises BrokenMessage with the reason why it is none of that kind."""
    if body[: len(MAGIC)] != MAGIC:
        if body[:3] == b"PSL":
            raise BrokenMessage(
                f"message format version {body[3:4]!r}: this is version {VERSION}; run one version everywhere"
            )
        raise BrokenMessage("not a message of pyspider_lite")
    flag, payload = body[len(MAGIC) : len(MAGIC) + 1], body[len(MAGIC) + 1 :]
    if flag == bytes([_ZSTD]):
        payload = _decompress(payload)
    elif flag != bytes([_PLAIN]):
        raise BrokenMessage(f"unknown compression {flag!r}")
    decoder = _decoders.get(kind)
    if decoder is None:
        decoder = _decoders[kind] = msgspec.msgpack.Decoder(kind)
    try:
        value: T = decoder.decode(payload)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenMessage(f"not a {getattr(kind, '__name__', kind)}: {error}") from error
    return value


def _decompress(payload: bytes) -> bytes:
    try:
        if zstandard.frame_content_size(payload) > MAX_DECODED:
            raise BrokenMessage("the message decompresses to more than is allowed")
        return zstandard.ZstdDecompressor().decompress(payload, max_output_size=MAX_DECODED)
    except zstandard.ZstdError as error:
        raise BrokenMessage(f"broken compression: {error}") from error


def pack(value: Any) -> bytes:
    """A struct as bare msgpack: for pipes between our own processes, and for `msgspec.Raw` fields."""
    return _encoder.encode(value)


def refusal(value: Any) -> str | None:
    """Why ``value`` can be in no message, in one sentence; None if it can."""
    try:
        _encoder.encode(value)
    except _NO_ENCODING as error:
        return _cannot_travel(error)
    return None


def keepsake(value: Any) -> bytes:
    """What is kept in a dead letter: as `pack`, or JSON of what has no msgpack; b"" if it has neither."""
    try:
        return pack(value)
    except _NO_ENCODING:
        try:
            return to_json(value).encode()
        except UnstorableValue:
            return b""


def _cannot_travel(error: Exception) -> str:
    if isinstance(error, OverflowError):
        return "it has an integer of more than 64 bits, which no message can carry: write it as text"
    if isinstance(error, RecursionError):
        return "it is nested too deeply for a message"
    if isinstance(error, UnicodeEncodeError):
        return "it has text with half a surrogate pair, which no message can carry"
    return f"no message can carry it: {error}"


def unpack(body: bytes, kind: type[T]) -> T:
    """The opposite of `pack`; raises BrokenMessage."""
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BrokenMessage(f"not a {getattr(kind, '__name__', kind)}: {error}") from error


def to_json(value: Any) -> str:
    """``value`` as JSON text for a column; raises UnstorableValue that names the part which is in the way.

    The encodings (demand UA37): datetime, date and time in ISO 8601, timedelta as its duration, Decimal and UUID as text, bytes in
    base64, sets and tuples as lists, enums by their value, dataclasses and structs as objects, subclasses of str, list and dict
    (lxml's and pyquery's texts) as what they are; NaN and infinities become null.
    """
    try:
        text = _json_encoder.encode(value)
    except _NO_ENCODING as error:
        raise UnstorableValue(_explain(value, "$", error)) from error
    if _is_deep(text):
        raise UnstorableValue(_explain(value, "$", RecursionError()))
    return text.decode()


def from_json(text: str | bytes | None) -> Any:
    """The value of a JSON column; an empty or NULL column reads as {} (behaviour D20). Raises ValueError for what cannot be read."""
    if not text:
        return {}
    try:
        return msgspec.json.decode(text)
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def from_shallow_json(text: str | bytes | None) -> Any:
    """The same of a column that travels: raises ValueError also for what has more levels than everybody on its way can read."""
    if text and len(text) > MAX_DEPTH and _is_deep(text if isinstance(text, bytes) else text.encode(errors="replace")):
        raise ValueError("it is nested too deeply")
    return from_json(text)


def bytes_to_text(value: bytes) -> str:
    """Bytes as they stand in the JSON of a task: as text if they are UTF-8, else in pyspider's base64 form (behaviour F2, X-P1)."""
    try:
        text = value.decode()
    except UnicodeDecodeError:
        text = ""
    # text that looks like the form would come out as something else
    if text.startswith(_BASE64_BEGIN) or (value and not text):
        return f"{_BASE64_BEGIN}{base64.b64encode(value).decode()}{_BASE64_END}"
    return text


def text_to_bytes(text: str) -> bytes:
    """The opposite of `bytes_to_text`; text that only looks like the base64 form is taken for what it says."""
    if text.startswith(_BASE64_BEGIN) and text.endswith(_BASE64_END):
        try:
            return base64.b64decode(text[len(_BASE64_BEGIN) : -len(_BASE64_END)], validate=True)
        except (binascii.Error, ValueError):
            pass
    return text.encode("utf-8", "replace")


def _is_deep(text: bytes) -> bool:
    """Whether JSON has more levels than are allowed."""
    # most values have fewer brackets than levels are allowed
    if text.count(b"[") + text.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING.sub(b"", text).translate(_SQUARE, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):  # each round takes the innermost away; real values have a few
        if not brackets:
            return False
        brackets = brackets.replace(b"[]", b"")
    return bool(brackets)


def _explain(value: Any, path: str, error: Exception, around: tuple[int, ...] = ()) -> str:
    """The path of the innermost part that cannot be encoded, and why it cannot."""
    shown = path[:200].encode(errors="backslashreplace").decode()
    if id(value) in around:
        return f"{shown}: a {type(value).__name__} that is inside itself cannot be stored"
    key = _refused_key(value)
    if key:
        return f"{shown}: a key of type {key} cannot be stored"
    parts = _parts(value, path)
    inner = (*around, id(value))
    if isinstance(error, RecursionError):
        if len(around) >= MAX_DEPTH or not parts:
            return f"{shown}: a {type(value).__name__} more than {MAX_DEPTH} levels deep cannot be stored"
        deepest_path, deepest = max(parts, key=lambda part: _levels(part[1]))
        return _explain(deepest, deepest_path, error, inner)
    part_path, part, refusal = next(((*part, why) for part in parts if (why := _refusal(part[1]))), ("", None, None))
    # of pyquery's and parsel's selections the whole is named, not the element in it
    if refusal is not None and (type(value) is list or not isinstance(value, list)):
        return _explain(part, part_path, refusal, inner)
    if refusal is not None or (isinstance(error, NotImplementedError | TypeError) and not parts):
        return f"{shown}: a value of type {type(value).__name__} cannot be stored"
    return f"{shown}: {error}"


def _refused_key(value: Any) -> str:
    """The type of a key of the dict that no JSON can have, or ""."""
    keys = value if isinstance(value, dict) else ()
    strange = (key for key in keys if not isinstance(key, str | int | float) and _refusal({key: None}) is not None)
    return next((type(key).__name__ for key in strange), "")


def _parts(value: Any, path: str = "") -> list[tuple[str, Any]]:
    """What is directly in a dict or list, with the path to it."""
    if isinstance(value, dict):
        return [(f"{path}.{key}", part) for key, part in value.items()]
    if isinstance(value, list | tuple | set | frozenset):
        return [(f"{path}[{index}]", part) for index, part in enumerate(value)]
    return []


def _levels(value: Any) -> int:
    """How deep dicts and lists are in each other; at most one more than is allowed."""
    level, depth = [value], 0
    while depth <= MAX_DEPTH:
        # each once: what is inside itself several times would double at each level
        inside = {id(part): part for part in level if isinstance(part, dict | list | tuple | set | frozenset)}
        if not inside:
            break
        depth += 1
        level = [part for one in inside.values() for part in (one.values() if isinstance(one, dict) else one)]
    return depth


def _refusal(value: Any) -> Exception | None:
    """Why ``value`` has no JSON; None if it has."""
    try:
        _json_encoder.encode(value)
    except Exception as error:
        return error
    return None
