"""Reads a ``curl`` command as browsers copy it ("copy as cURL") into arguments of ``self.crawl`` (behaviour H70 to H72).

What would need a file, or asks for what ``self.crawl`` cannot do, is a TypeError that names it. Options that only say what curl
prints, or which version of a protocol it speaks, are left out.
"""

import base64
import re
from collections.abc import Callable, Iterator
from typing import Any, NoReturn
from urllib.parse import quote, quote_plus

from pyspider_lite import crawl_config
from pyspider_lite.handler.shell_words import split_command

#: another spelling -> the one that `_Reader` knows
_SAME = {
    "--header": "-H",
    "--request": "-X",
    "--cookie": "-b",
    "--user-agent": "-A",
    "--referer": "-e",
    "--user": "-u",
    "--proxy": "-x",
    "--proxy-user": "-U",
    "--form": "-F",
    "--range": "-r",
    "--max-time": "-m",
    "--data": "-d",
    "--data-ascii": "-d",
    "--data-binary": "-d",
    "--get": "-G",
    "--head": "-I",
    "--insecure": "-k",
    "--location": "-L",
}
_IGNORED = {
    *("-s", "--silent", "-S", "--show-error", "-v", "--verbose", "-i", "--include", "--show-headers", "-f", "--fail"),
    *(
        "-#",
        "--progress-bar",
        "--no-progress-meter",
        "-N",
        "--no-buffer",
        "-g",
        "--globoff",
        "--path-as-is",
        "-4",
        "-6",
    ),
    *("--http1.0", "--http1.1", "--http2", "--http2-prior-knowledge", "--http3", "--tlsv1.2", "--tlsv1.3", "-q"),
}


def curl_to_arguments(command: str) -> dict[str, Any]:
    """``{"urls": [...]}`` with headers, method, data, files, proxy ... where the command says so.

    TypeError: an option that is not understood, or no URL. ValueError: a quotation mark without its other half.
    """
    reader = _Reader()
    words = iter(split_command(command)[1:])
    for word in words:
        if not word.startswith("-") or word == "-":
            reader.urls.append(word)
        else:
            _read_option(reader, word, words)
    return reader.arguments()


def _read_option(reader: "_Reader", word: str, words: Iterator[str]) -> None:
    """One word: a long option, or short ones in a row (``-skXPUT``)."""
    if word.startswith("--"):
        _take(reader, word, word, lambda: next(words, None))
        return
    rest = word[1:]
    while rest:
        option, rest = f"-{rest[0]}", rest[1:]
        if _take(reader, option, word, lambda glued=rest: glued or next(words, None)):  # type: ignore[misc]
            return


def _take(reader: "_Reader", option: str, word: str, value: Callable[[], str | None]) -> bool:
    """Hand the option to the reader; whether it took a value."""
    option = _SAME.get(option, option)
    flag = _FLAGS.get(option)
    if flag is not None:
        flag(reader)
        return False
    with_value = _WITH_VALUE.get(option)
    if with_value is not None:
        given = value()
        if given is None:
            raise TypeError(f"curl: {word} needs a value")
        with_value(reader, given)
        return True
    if option in _IGNORED:
        return False
    raise TypeError(f"Unknow curl option: {word}")


class _Reader:
    """What the options said so far."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        #: those of -H, which win, and those of other options
        self._headers: dict[str, str] = {}
        self.implied: dict[str, str] = {}
        self.options: dict[str, Any] = {}
        self._cookies: list[str] = []
        self._data: list[str] = []
        self._form: list[tuple[str, tuple[str | None, ...]]] = []
        self._json = ""
        self._proxy_user = ""
        self._get = False

    # --- request --------------------------------------------------------------------------------------------------------

    def header(self, line: str) -> None:
        name, colon, value = line.partition(":")
        if colon:
            self._headers[name.strip()] = value.strip()

    def cookie(self, value: str) -> None:
        if "=" not in value:
            _no_file("-b", value)
        self._cookies.append(value)

    def referer(self, value: str) -> None:
        self.implied["Referer"] = value.removesuffix(";auto")

    def user(self, value: str) -> None:
        self.implied["Authorization"] = f"Basic {base64.b64encode(value.encode()).decode()}"

    def proxy_user(self, value: str) -> None:
        self._proxy_user = value

    def get(self) -> None:
        self._get = True

    # --- body -----------------------------------------------------------------------------------------------------------

    def data(self, value: str) -> None:
        if value.startswith("@"):
            _no_file("-d", value)
        self._data.append(value)

    def raw(self, value: str) -> None:
        self._data.append(value)

    def urlencode(self, value: str) -> None:
        name, mark, content = re.match(r"([^=@]*)([=@]?)(.*)", value, re.DOTALL).groups()  # type: ignore[union-attr]
        if mark == "@":
            _no_file("--data-urlencode", value)
        if not mark:
            name, content = "", name
        self._data.append(f"{name}={quote_plus(content)}" if name else quote_plus(content))

    def json(self, value: str) -> None:
        if value.startswith("@"):
            _no_file("--json", value)
        self._json += value

    def form(self, value: str) -> None:
        name, _, content = value.partition("=")
        if content.startswith(("@", "<")):
            _no_file("-F", value)
        content, *more = content.split(";type=")
        if len(content) > 1 and content[0] == content[-1] == '"':
            content = content[1:-1]
        self._form.append((name, (None, content, *more)))

    def form_string(self, value: str) -> None:
        name, _, content = value.partition("=")
        self._form.append((name, (None, content)))

    # --- all of it ------------------------------------------------------------------------------------------------------

    def arguments(self) -> dict[str, Any]:
        """The arguments of ``self.crawl``."""
        if not self.urls:
            raise TypeError("curl: no URL specified!")
        arguments = {"urls": self.urls, **self.options}
        if self._cookies:
            self.implied["Cookie"] = "; ".join(self._cookies)
        if self._proxy_user and "proxy" in arguments:
            scheme, mark, address = arguments["proxy"].rpartition("://")
            user, colon, password = self._proxy_user.partition(":")
            arguments["proxy"] = f"{scheme}{mark}{quote(user, '')}{colon}{quote(password, '')}@{address}"
        self._add_body(arguments)
        headers = {**crawl_config.without_header(self.implied, self._headers), **self._headers}
        if headers:
            arguments["headers"] = headers
        return arguments

    def _add_body(self, arguments: dict[str, Any]) -> None:
        if self._json:
            self._data.append(self._json)
            self.implied |= dict.fromkeys(("Content-Type", "Accept"), "application/json")
        if self._get:
            self._into_query()
        elif self._data:
            arguments["data"] = "&".join(self._data)
        if self._form:
            arguments["files"] = self._form
        if "data" in arguments or "files" in arguments:
            arguments.setdefault("method", "POST")
        if "data" in arguments and arguments["method"] != "POST":
            # curl says so with any method; of a POST the fetcher does
            self.implied.setdefault("Content-Type", "application/x-www-form-urlencoded")

    def _into_query(self) -> None:
        query = "&".join(self._data)
        for index, url in enumerate(self.urls if query else ()):
            address, mark, fragment = url.partition("#")
            self.urls[index] = f"{address}{'&' if '?' in address else '?'}{query}{mark}{fragment}"


def _no_file(option: str, value: str) -> NoReturn:
    raise TypeError(f"curl: {option} {value!r:.100} names a file, and files cannot be read here: give its content")


def _set(name: str, convert: Callable[[str], Any] = str) -> Callable[[_Reader, str], None]:
    """An option whose value is an argument of ``self.crawl``."""

    def take(reader: _Reader, value: str) -> None:
        reader.options[name] = convert(value)

    return take


def _switch(name: str, value: Any) -> Callable[[_Reader], None]:
    return lambda reader: reader.options.__setitem__(name, value)


def _set_header(name: str, before: str = "") -> Callable[[_Reader, str], None]:
    return lambda reader, value: reader.implied.__setitem__(name, before + value)


_FLAGS: dict[str, Callable[[_Reader], None]] = {
    "--compressed": _switch("use_gzip", True),
    "-L": _switch("allow_redirects", True),
    "-k": _switch("validate_cert", False),
    "-I": _switch("method", "HEAD"),
    "-G": _Reader.get,
}
_WITH_VALUE: dict[str, Callable[[_Reader, str], None]] = {
    "--url": lambda reader, value: reader.urls.append(value),
    "-X": _set("method"),
    "-x": _set("proxy"),
    "-U": _Reader.proxy_user,
    "-m": _set("timeout", float),
    "--connect-timeout": _set("connect_timeout", float),
    "--max-redirs": _set("max_redirects", int),
    "-H": _Reader.header,
    "-A": _set_header("User-Agent"),
    "-r": _set_header("Range", "bytes="),
    "-e": _Reader.referer,
    "-b": _Reader.cookie,
    "-u": _Reader.user,
    "-d": _Reader.data,
    "--data-raw": _Reader.raw,
    "--data-urlencode": _Reader.urlencode,
    "--json": _Reader.json,
    "-F": _Reader.form,
    "--form-string": _Reader.form_string,
}
