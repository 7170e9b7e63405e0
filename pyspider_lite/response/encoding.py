"""Finds the encoding of a body and turns bytes into text; called by `Response` only.

The order is a browser's (WHATWG encoding sniffing): byte order mark, HTTP header, declaration in the document, detection.
A wrong or unknown label never raises: what cannot be decoded becomes U+FFFD.

Two libraries help. ``webencodings`` is the WHATWG table of labels (``latin1`` is windows-1252, ``x-sjis`` is windows-31j), small and
without dependencies: a table of our own would be the same 228 lines. ``charset-normalizer`` detects; ``requests`` brings it along, it
is alive and has wheels. It is asked about the text of the page, not its markup, and about encodings that pages are written in:
so it is right more often (13 of 14 languages instead of 12) and takes a fifth of the time. Which of the encodings of Latin letters it
is, it cannot tell: their bytes are the same. There the letters decide (`_ALPHABETS`), and windows-1252, the default of browsers, where
they do not.
"""

import codecs
import re
from functools import lru_cache
from itertools import chain

import charset_normalizer
import webencodings

#: how far into the document a declaration is looked for; browsers re-read the page for one behind the first 1024 bytes
PRESCAN_BYTES = 4096
#: how much of a body without any declaration is looked at, and how much text of it is given to the detector
DETECT_WITHIN, DETECT_BYTES = 65536, 4096

# UTF-32 first: its little-endian mark begins with the one of UTF-16
_BOMS = (
    (codecs.BOM_UTF8, "UTF-8-SIG"),
    (codecs.BOM_UTF32_LE, "UTF-32"),
    (codecs.BOM_UTF32_BE, "UTF-32"),
    (codecs.BOM_UTF16_LE, "UTF-16"),
    (codecs.BOM_UTF16_BE, "UTF-16"),
    # an XML declaration can be in UTF-16 without a mark
    ("<?x".encode("utf-16-le"), "utf-16le"),
    ("<?x".encode("utf-16-be"), "utf-16be"),
)
_MARKED = frozenset(mark[0] for mark, _ in _BOMS)
_HEADER_CHARSET = re.compile(r"charset\s*=\s*[\"']?\s*([^\s\"';,]+)", re.IGNORECASE)
_COMMENT = re.compile(rb"<!--.*?-->", re.DOTALL)
_META_CHARSET = re.compile(rb"<meta[^>]{1,500}?charset\s*=\s*[\"']?\s*([^\s\"'/>;]+)", re.IGNORECASE)
_XML_ENCODING = re.compile(rb"^\s*<\?xml[^>]{1,200}?encoding\s*=\s*[\"']\s*([^\s\"'>]+)", re.IGNORECASE)
_MARKUP = re.compile(rb"<(script|style)\b.*?</\1|<[^>]*>|\s+", re.IGNORECASE | re.DOTALL)

#: what the detector may answer
_CANDIDATES = [
    *("gb18030", "big5", "cp932", "euc_jp", "iso2022_jp", "cp949", "cp1251", "koi8_r", "koi8_u", "iso8859_5", "cp1252"),
    *("cp1250", "iso8859_2", "cp1253", "cp1254", "cp1255", "cp1256", "cp1257", "tis_620"),
]
_CENTRAL = ("óąćęłńśźż", "áéíóúýčďěňřšťůž", "áäéíóôúýčďĺľňŕšťž", "áéíóöúüőű", "âîăşţ", "ćčđšž")
#: encodings of Latin letters, and the letters beside a to z of the languages that are written in each; the first wins a tie
_ALPHABETS = {
    "cp1252": (
        *("£¢½¼¾×é", "àâæçèéêëîïôùûüÿœ", "äöüß", "áéíñóúü¿¡ºª", "àáâãçéêíóôõúüºª", "àèéìíîòóùú", "åäöé", "åæéø"),
        *("áâäçèéêëíîïóôöúü", "áæéíðóöúýþ"),
    ),
    "cp1250": _CENTRAL,
    "iso8859_2": _CENTRAL,
    "cp1257": ("ąčėęįšūųž", "āčēģīķļņšūž", "äõöüšž"),
    "cp1254": ("âçîöûüğış",),
}
#: the same bytes in all of them
_PUNCTUATION = frozenset("\xa0“”‘’‚„…–—«»•·°€™©®§")
#: share of letters that must belong to a language, where the detector has no idea
_SURE = 0.9
#: codecs of Python that are no encodings of pages; browsers refuse UTF-7, in which text without any < is markup
_NO_PAGES = frozenset({"unicode-escape", "raw-unicode-escape", "undefined", "idna", "punycode", "utf-7"})


def find_encoding(content: bytes, content_type: str) -> str:
    """The name of the encoding, as it was declared (``gb2312`` reads ``gb18030``), or as it was detected (behaviour R3)."""
    if not content:
        return "utf-8"
    if content[0] in _MARKED:
        for mark, name in _BOMS:
            if content.startswith(mark):
                return name
    declared = _declared(content, content_type)
    known = next(filter(_codec, declared), None)
    if known:
        return "gb18030" if known.lower() == "gb2312" else known
    detected = _detect(content)
    # a name that nobody knows is still shown, where UTF-8 is right anyway
    return declared[0] if declared and detected in ("ascii", "utf-8") else detected


def _declared(content: bytes, content_type: str) -> list[str]:
    """The labels of header, ``<meta>`` and XML declaration."""
    header = _HEADER_CHARSET.search(content_type) if content_type else None
    if header and _codec(header[1]):
        return [header[1]]
    head = content[:PRESCAN_BYTES]
    inside = chain(_META_CHARSET.finditer(_COMMENT.sub(b"", head)), _XML_ENCODING.finditer(head))
    return [*([header[1]] if header else ()), *(_in_ascii(found[1].decode("ascii", "replace")) for found in inside)]


def _in_ascii(label: str) -> str:
    """The encoding of a document that says so in ASCII (WHATWG): it cannot be UTF-16, whatever it says."""
    lower = label.lower()
    if lower.startswith("utf-16"):
        return "utf-8"
    return "windows-1252" if lower == "x-user-defined" else label


def _detect(content: bytes) -> str:
    if content.isascii() and b"\x1b$" not in content:  # iso-2022-jp is ASCII with escapes
        return "ascii"
    text = content.decode("utf-8", "replace")
    broken = text.count("\ufffd")
    # a few illegal bytes in a long page do not make it another encoding
    if not content.isascii() and (
        broken == 0 or broken * 10 < sum(not char.isascii() for char in text[:DETECT_WITHIN])
    ):
        return "utf-8"
    visible = _MARKUP.sub(b" ", content[:DETECT_WITHIN])[:DETECT_BYTES]
    best = charset_normalizer.from_bytes(visible, cp_isolation=_CANDIDATES).best()
    if best is None or best.encoding in _ALPHABETS:
        share, encoding = _latin(visible)
        return encoding if best is not None or share >= _SURE else "utf-8"
    return best.encoding


def _latin(visible: bytes) -> tuple[float, str]:
    """The encoding in which most of the letters beside a to z belong to one language, and how many do."""
    shares = {}
    for encoding, alphabets in _ALPHABETS.items():
        text = visible.decode(encoding, "replace").lower()
        letters = [char for char in text if not char.isascii() and char not in _PUNCTUATION]
        known = max(sum(char in alphabet for char in letters) for alphabet in alphabets)
        shares[encoding] = known / len(letters) if letters else 0.0
    encoding = max(shares, key=shares.__getitem__)
    return shares[encoding], encoding


def decode(content: bytes, encoding: str) -> str:
    """``content`` as text. Bytes that are illegal become U+FFFD; where ``encoding`` is unknown it is detected, which is UTF-8 for all
    that can be (behaviour R2); a byte order mark is no part of the text."""
    text, _ = (_codec(encoding) or codecs.lookup(_detect(content))).decode(content, "replace")
    return text.removeprefix("\ufeff")


def keeps_ascii(encoding: str) -> bool:
    """Whether bytes that are ASCII are the text that they are in ASCII, as in the encodings of most pages they are."""
    codec = _codec(encoding)
    return codec is not None and codec.name in ("utf-8", "ascii", "cp1252")


@lru_cache(maxsize=256)
def _codec(label: str) -> codecs.CodecInfo | None:
    """What browsers decode the label with; for labels that they do not know, Python's codec of that name, or None."""
    label = label.strip()
    found = webencodings.lookup(label) if label.isascii() else None
    # "replacement" is a browser's refusal to decode; Python's UTF-16 heeds a byte order mark
    if found is None or found.name == "replacement" or label.lower() == "utf-16":
        return _python_codec(label)
    return codecs.lookup("gb18030") if found.name == "gbk" else found.codec_info


def _python_codec(name: str) -> codecs.CodecInfo | None:
    try:
        info = codecs.lookup(name)
    except (LookupError, ValueError):  # ValueError: there is a NUL in the name
        return None
    is_text = getattr(info, "_is_text_encoding", True)
    return info if is_text and info.name.replace("_", "-") not in _NO_PAGES else None
