"""Reads a ``curl`` command as browsers copy it ("copy as cURL") into arguments of ``self.crawl`` (behaviour H70 to H72)."""

import re
from typing import Any

_WORD_PART = re.compile(
    r"(?P<space>(?:\s|\\\r?\n)+)"  # a backslash before the end of a line continues it
    r"|\$'(?P<ansi>(?:[^'\\]|\\.)*)'"
    r"|'(?P<single>[^']*)'"
    r"|\"(?P<double>(?:[^\"\\]|\\.)*)\""
    r"|\\(?P<escaped>.)"
    r"|(?P<plain>\$|[^\s'\"\\$]+)",
    re.DOTALL,
)
_ANSI_ESCAPE = re.compile(r"\\(u[0-9A-Fa-f]{1,4}|U[0-9A-Fa-f]{1,8}|x[0-9A-Fa-f]{1,2}|[0-7]{1,3}|.)", re.DOTALL)
_ANSI_LETTERS = {"n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "e": "\x1b", "f": "\f", "v": "\v"}

_DATA = ("-d", "--data", "--data-ascii", "--data-binary", "--data-raw")
#: options that take a value; what they are called short may be glued to it (-XPUT)
_WITH_VALUE = ("-H", "--header", "-X", "--request", "-b", "--cookie", *_DATA)


def curl_to_arguments(command: str) -> dict[str, Any]:
    """``{"urls": [...], "headers"?, "method"?, "data"?, "use_gzip"?}``; TypeError for an option that is not understood."""
    urls: list[str] = []
    headers: dict[str, str] = {}
    data: list[str] = []
    arguments: dict[str, Any] = {"urls": urls}
    words = iter(_split(command)[1:])
    for word in words:
        option, value = _option(word)
        if option is None:
            urls.append(word)
        elif option == "--compressed":
            arguments["use_gzip"] = True
        else:
            value = value or next(words, "")
            if option in ("-X", "--request"):
                arguments["method"] = value
            elif option in _DATA:
                data.append(value)
            else:
                _add_header(headers, value if option in ("-H", "--header") else f"Cookie: {value}")
    if not urls:
        raise TypeError("curl: no URL specified!")
    if headers:
        arguments["headers"] = headers
    if data:
        arguments["data"] = "&".join(data)
        arguments.setdefault("method", "POST")
    return arguments


def _option(word: str) -> tuple[str | None, str]:
    """The option that ``word`` is and the value glued to it; (None, "") for a URL."""
    if not word.startswith("-"):
        return None, ""
    if word in _WITH_VALUE or word == "--compressed":
        return word, ""
    if word[:2] in _WITH_VALUE:
        return word[:2], word[2:]
    raise TypeError(f"Unknow curl option: {word}")


def _add_header(headers: dict[str, str], line: str) -> None:
    name, colon, value = line.partition(":")
    if colon:
        headers[name.strip()] = value.strip()


def _split(command: str) -> list[str]:
    """The words of a shell command; quotes, ``$'...'`` and continuation lines as in bash, no expansions."""
    words: list[str] = []
    word: list[str] | None = None
    position = 0
    while position < len(command):
        part = _WORD_PART.match(command, position)
        if part is None:
            raise ValueError("No closing quotation")
        position = part.end()
        if part.lastgroup == "space":
            if word is not None:
                words.append("".join(word))
            word = None
        else:
            word = [*(word or ()), _unquoted(part)]
    return words if word is None else [*words, "".join(word)]


def _unquoted(part: re.Match[str]) -> str:
    text = part[part.lastgroup or 0]
    if part.lastgroup == "ansi":
        return _ANSI_ESCAPE.sub(_ansi_escape, text)
    if part.lastgroup == "double":
        return re.sub(r"\\(?:\r?\n)|\\([$`\"\\])", lambda found: found[1] or "", text)
    return text


def _ansi_escape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "uUx" and len(code) > 1:
        return chr(int(code[1:], 16))
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ANSI_LETTERS.get(code, code)
