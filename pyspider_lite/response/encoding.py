"""Finds the encoding of a body and turns bytes into text; called by `Response` only.

The order is a browser's (WHATWG encoding sniffing): byte order mark, HTTP header, declaration in the document, detection.
A wrong or unknown label never raises: what cannot be decoded becomes U+FFFD.
"""

import codecs
import re

import charset_normalizer

#: how far into the document a declaration is looked for; browsers re-read the page for one behind the first 1024 bytes
PRESCAN_BYTES = 4096
#: how much of a body without any declaration is given to the detector
DETECT_BYTES = 4096

# UTF-32 first: its little-endian mark begins with the one of UTF-16
_BOMS = (
    (codecs.BOM_UTF8, "UTF-8-SIG"),
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_META_CHARSET = re.compile(rb"<meta[^>]{1,500}?charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{1,200}?encoding\s*=\s*[\"']([^\s\"'>]+)", re.IGNORECASE)

#: what browsers decode a label with, where that is more than Python's codec of the name knows
_DECODED_AS = {
    "ascii": "cp1252",
    "us-ascii": "cp1252",
    "iso-8859-1": "cp1252",
    "iso8859-1": "cp1252",
    "latin1": "cp1252",
    "latin-1": "cp1252",
    "iso-8859-9": "cp1254",
    "iso-8859-11": "cp874",
    "tis-620": "cp874",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "x-gbk": "gb18030",
    "big5": "big5hkscs",
    "x-x-big5": "big5hkscs",
    "shift_jis": "cp932",
    "shift-jis": "cp932",
    "x-sjis": "cp932",
    "sjis": "cp932",
    "euc-kr": "cp949",
    "ks_c_5601-1987": "cp949",
    "x-user-defined": "cp1252",
    "unicode-1-1-utf-8": "utf-8",
}


def find_encoding(content: bytes, content_type: str) -> str:
    """The name of the encoding, as it was declared (``gb2312`` reads ``gb18030``), or as it was detected (behaviour R3)."""
    if not content:
        return "utf-8"
    for mark, name in _BOMS:
        if content.startswith(mark):
            return name
    declared = _declared(content, content_type)
    if declared:
        return "gb18030" if declared.lower() == "gb2312" else declared
    return _detect(content)


def _declared(content: bytes, content_type: str) -> str:
    if content_type:
        match = _HEADER_CHARSET.search(content_type)
        if match:
            return match[1]
    head = content[:PRESCAN_BYTES]
    found = _META_CHARSET.search(head) or _XML_ENCODING.search(head)
    if not found:
        return ""
    name = found[1].decode("ascii", "replace")
    # a declaration that could be read as ASCII is not in UTF-16, whatever it says (WHATWG)
    return "utf-8" if name.lower().startswith("utf-16") else name


def _detect(content: bytes) -> str:
    if content.isascii():
        return "ascii"
    text = content.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    # a few illegal bytes in a long page do not make it another encoding
    if broken == 0 or broken * 10 < sum(not char.isascii() for char in text[:DETECT_BYTES]):
        return "utf-8"
    best = charset_normalizer.from_bytes(content[:DETECT_BYTES]).best()
    return best.encoding if best is not None else "utf-8"


def decode(content: bytes, encoding: str) -> str:
    """``content`` as text. Bytes that are illegal become U+FFFD, an unknown ``encoding`` is read as UTF-8 (behaviour R2)."""
    label = encoding.strip().lower()
    try:
        return content.decode(_DECODED_AS.get(label, label), "replace")
    except (LookupError, ValueError):  # ValueError: there is a NUL in the name
        return content.decode("utf-8", "replace")
