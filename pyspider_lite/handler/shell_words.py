"""Splits a command into words as bash does: quotes, ``$'...'`` and continued lines, no expansions. Called by `curl` only."""

import re

_PART = re.compile(
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
_HALVES = re.compile("[\ud800-\udbff][\udc00-\udfff]")


def split_command(command: str) -> list[str]:
    """The words; ValueError for a quotation mark without its other half."""
    if '^"' in command:  # copied for Windows' cmd.exe, where ^ is the escape
        command = re.sub(r"\^(\r?\n|.)", r"\1", command)
    words: list[str] = []
    word: list[str] | None = None
    position = 0
    while position < len(command):
        part = _PART.match(command, position)
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
        # browsers write an emoji as the two halves that JavaScript has of it
        return _HALVES.sub(_whole, _ANSI_ESCAPE.sub(_ansi_escape, text))
    if part.lastgroup == "double":
        return re.sub(r"\\(?:\r?\n)|\\([$`\"\\])", lambda found: found[1] or "", text)
    return text


def _whole(found: re.Match[str]) -> str:
    return found[0].encode("utf-16", "surrogatepass").decode("utf-16")


def _ansi_escape(found: re.Match[str]) -> str:
    code = found[1]
    if code[0] in "uUx" and len(code) > 1:
        number = int(code[1:], 16)
        return chr(number) if number <= 0x10FFFF else "\ufffd"
    if code[0] in "01234567":
        return chr(int(code, 8))
    return _ANSI_LETTERS.get(code, code)
