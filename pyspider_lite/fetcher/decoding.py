"""Content codings: gzip, deflate, br and zstd, decoded into a bounded size. libcurl passes the bytes through as they came.

`ACCEPT_ENCODING` is what requests advertise: exactly what `decode` can undo (demand UA8).
"""

import zlib

import zstandard

from pyspider_lite.fetcher.failure import FetchFailed

try:
    import brotli

    # older versions cannot bound their output, so that a bomb would go off
    _BROTLI = hasattr(brotli.Decompressor, "can_accept_more_data")
except ImportError:
    _BROTLI = False

ACCEPT_ENCODING = "gzip, deflate, br, zstd" if _BROTLI else "gzip, deflate, zstd"

_MAX_CODINGS = 3
_GZIP_MAGIC = b"\x1f\x8b"
#: a file of 32 MiB in the blocks of common tools has 500
_MAX_MEMBERS = 10_000
_GZIP_SLICE = 16 * 1024
_ZSTD_FRAME = zstandard.FRAME_HEADER
#: zstd's output cannot be bounded in a call; this much input gives at most 32 MiB (a block of 4 bytes can mean 128 KiB)
_ZSTD_SLICE = 1024
#: RFC 9659
_ZSTD_WINDOW = 8 * 1024 * 1024


def decode(content_encoding: str, body: bytes, limit: int) -> bytes:
    """``body`` with all codings undone. Raises FetchFailed: ``protocol`` for an unknown coding or broken data, ``truncated``
    for data that ends early, ``too-large`` for more than ``limit`` bytes."""
    codings = [coding.strip().lower() for coding in content_encoding.split(",")]
    codings = [coding for coding in codings if coding not in ("", "identity", "none")]
    if len(codings) > _MAX_CODINGS:
        raise FetchFailed("protocol", f"the body has {len(codings)} content codings; {_MAX_CODINGS} are allowed")
    for coding in reversed(codings):
        decoder = _DECODERS.get(coding)
        if decoder is None:
            raise FetchFailed("protocol", f"the body has the content coding {coding[:50]!r}, which was not asked for")
        try:
            body = decoder(body, limit)
        except _BROKEN as error:
            raise FetchFailed("protocol", f"the body is not {coding}: {error}") from error
    return body


def _too_large(limit: int) -> FetchFailed:
    return FetchFailed("too-large", f"the decoded body is larger than {limit} bytes")


def _truncated(coding: str) -> FetchFailed:
    return FetchFailed("truncated", f"the {coding} data of the body ends early")


def _zlib(body: bytes, limit: int, wbits: int, coding: str) -> bytes:
    decompressor = zlib.decompressobj(wbits)
    # max_length 0 means no limit
    plain = decompressor.decompress(body, limit + 1)
    if len(plain) > limit:
        raise _too_large(limit)
    if not decompressor.eof:
        raise _truncated(coding)
    at = len(body) - len(decompressor.unused_data)
    if coding == "gzip" and body[at : at + 2] == _GZIP_MAGIC:
        return _gzip_members(plain, body, at, limit)
    # anything else behind the data is padding or rubbish, which browsers ignore
    return plain


def _gzip_members(first: bytes, body: bytes, at: int, limit: int) -> bytes:
    """Several gzip members in a row are one body (RFC 1952). Fed in slices, because zlib copies what a member leaves over."""
    parts, size = [first], len(first)
    members = 1
    while body[at : at + 2] == _GZIP_MAGIC:
        members += 1
        if members > _MAX_MEMBERS:
            raise FetchFailed("protocol", f"the gzip data of the body has more than {_MAX_MEMBERS} members")
        decompressor = zlib.decompressobj(zlib.MAX_WBITS | 16)
        while not decompressor.eof:
            piece = body[at : at + _GZIP_SLICE]
            if not piece:
                raise _truncated("gzip")
            parts.append(decompressor.decompress(piece, limit - size + 1))
            size += len(parts[-1])
            if size > limit:
                raise _too_large(limit)
            at += len(piece) - len(decompressor.unused_data)
    return b"".join(parts)


def _gzip(body: bytes, limit: int) -> bytes:
    return _zlib(body, limit, zlib.MAX_WBITS | 16, "gzip")


def _deflate(body: bytes, limit: int) -> bytes:
    """The standard says zlib's format, many servers send raw deflate."""
    try:
        return _zlib(body, limit, zlib.MAX_WBITS, "deflate")
    except zlib.error:
        return _zlib(body, limit, -zlib.MAX_WBITS, "deflate")


def _br(body: bytes, limit: int) -> bytes:
    decompressor = brotli.Decompressor()
    parts, size, data = [], 0, body
    while not decompressor.is_finished():
        part = decompressor.process(data, output_buffer_limit=limit - size + 1)
        data = b""
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        if not part and not decompressor.is_finished() and decompressor.can_accept_more_data():
            raise _truncated("br")
        parts.append(part)
    return b"".join(parts)


def _zstd(body: bytes, limit: int) -> bytes:
    parts: list[bytes] = []
    size, at = 0, 0
    context = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW)
    decompressor = context.decompressobj()
    while at < len(body):
        part = decompressor.decompress(body[at : at + _ZSTD_SLICE])
        at += _ZSTD_SLICE
        size += len(part)
        if size > limit:
            raise _too_large(limit)
        parts.append(part)
        if decompressor.eof:
            at = min(at, len(body)) - len(decompressor.unused_data)
            if body[at : at + 4] != _ZSTD_FRAME:
                break
            decompressor = context.decompressobj()
    if not decompressor.eof:
        raise _truncated("zstd")
    return b"".join(parts)


_DECODERS = {"gzip": _gzip, "x-gzip": _gzip, "deflate": _deflate, "zstd": _zstd}
_BROKEN: tuple[type[Exception], ...] = (zlib.error, zstandard.ZstdError)
if _BROTLI:
    _DECODERS["br"] = _br
    _BROKEN = (*_BROKEN, brotli.error)
