"""The response that a callback gets (behaviour R1 to R11). Everything that costs is made when it is first asked for.

Made by the processor's child from what the fetcher sent. It neither knows queues nor databases.
"""

import json
import re
from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

import requests
from requests.structures import CaseInsensitiveDict

from pyspider_lite.models.page import FetchResponse
from pyspider_lite.response import document, encoding
from pyspider_lite.response.document import Document

if TYPE_CHECKING:
    from parsel import Selector, SelectorList

__all__ = ["Document", "Response", "rebuild_response"]

_MADE_FROM_TEXT = ("text", "json", "etree", "doc", "base_url", "_resolve", "_selector")
#: half of a character that JSON can spell and that no encoding has
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class Response:
    """One page. ``status_code`` is 599 when it could not be fetched; ``error`` and ``error_kind`` then say why."""

    def __init__(
        self,
        status_code: int | None = None,
        url: str | None = None,
        orig_url: str | None = None,
        headers: dict[str, str] | None = None,
        content: bytes | str = "",
        cookies: dict[str, str] | None = None,
        error: str | None = None,
        traceback: str | None = None,
        save: Any = None,
        js_script_result: Any = None,
        time: float = 0,
    ) -> None:
        self.status_code: int = 599 if status_code is None else status_code
        #: where the page was found, after redirects
        self.url: str = url or ""
        #: the URL of the task
        self.orig_url: str = self.url if orig_url is None else orig_url
        self._headers = headers or {}
        #: the body: bytes, or str where the fetcher already had text (``data:`` URLs, browsers)
        self.content: bytes | str = content
        self.cookies: dict[str, str] = cookies or {}
        self.error: str | None = error
        self.traceback: str | None = traceback
        #: what ``self.crawl(save=...)`` sent along
        self.save: Any = save
        self.js_script_result: Any = js_script_result
        #: seconds
        self.time: float = time
        #: each hop: status, url, cookies set on it
        self.redirects: list[dict[str, Any]] = []
        #: the kind of failure, a stable word (timeout, dns, tls, robots ...), or None
        self.error_kind: str | None = None
        #: seconds from the start to the end of each phase: dns connect tls first_byte total
        self.timings: dict[str, float] = {}
        #: the proxy that was used, without its password
        self.proxy: str | None = None

    @classmethod
    def from_fetch(cls, fetched: FetchResponse) -> "Response":
        """The response to what a fetcher sent."""
        response = cls(
            status_code=fetched.status_code,
            url=fetched.url,
            orig_url=fetched.orig_url,
            headers=fetched.headers,
            content=fetched.content,
            cookies=fetched.cookies,
            error=fetched.error,
            traceback=fetched.traceback,
            save=fetched.save,
            js_script_result=fetched.js_script_result,
            time=fetched.time,
        )
        response.redirects = fetched.redirects
        response.error_kind = fetched.error_kind
        response.timings = fetched.timings
        response.proxy = fetched.proxy
        return response

    def __repr__(self) -> str:
        return f"<Response [{self.status_code}]>"

    # --- head -----------------------------------------------------------------------------------------------------------

    @cached_property
    def headers(self) -> CaseInsensitiveDict[str]:
        """The headers; names are case-insensitive, repeated ones are joined by a comma."""
        return CaseInsensitiveDict(self._headers)

    @property
    def ok(self) -> bool:
        """Whether `raise_for_status` would not raise."""
        return self._failure(True) is None

    def isok(self) -> bool:
        """The same as ``ok``, as old scripts spell it."""
        return self.ok

    def __bool__(self) -> bool:
        return self.ok

    def raise_for_status(self, allow_redirects: bool = True) -> None:
        """Raise for an error or a status of 400 and more; with ``allow_redirects=False`` for 3xx too. 304 never raises (R8)."""
        failure = self._failure(allow_redirects)
        if failure is None:
            return
        if self.error and self.traceback:
            # it failed inside a worker; its traceback is more telling than ours
            remote = Exception(failure)
            remote.add_note(self.traceback)
            raise remote
        answer: Any = self
        raise requests.HTTPError(failure, response=answer)

    def _failure(self, allow_redirects: bool) -> str | None:
        code = self.status_code
        if code == 304:
            return None
        if self.error:
            return self.error
        if 300 <= code < 400 and not allow_redirects:
            return f"{code} Redirection"
        if 400 <= code < 500:
            return f"{code} Client Error"
        if self.error_kind == "browser":  # the fetcher's own answer (behaviour F33), not a server's
            return f"{code} Server Error: {self.text} Pages are not rendered by a browser yet."
        return f"{code} Server Error" if code >= 500 else None

    # --- body -----------------------------------------------------------------------------------------------------------

    @property
    def encoding(self) -> str:
        """The name of the body's encoding, ``unicode`` if it came as text. Assign it to correct a page that declares it wrongly."""
        found: str | None = self.__dict__.get("_encoding")
        if found is None:
            if isinstance(self.content, str):
                found = "unicode"
            else:
                found = encoding.find_encoding(self.content, self._content_type() or "")
            self._encoding = found
        return found

    @encoding.setter
    def encoding(self, name: str) -> None:
        self._encoding = name
        for made in _MADE_FROM_TEXT:
            self.__dict__.pop(made, None)

    def _content_type(self) -> str | None:
        if "headers" in self.__dict__:  # a script may have corrected them
            return self.headers.get("Content-Type")
        return next((value for name, value in self._headers.items() if name.lower() == "content-type"), None)

    @property
    def known_encoding(self) -> str | None:
        """The encoding if anything so far needed it, else None: what the track of a task shows (behaviour P21)."""
        return self.__dict__.get("_encoding")

    @cached_property
    def text(self) -> str:
        """The body as text; what cannot be decoded becomes U+FFFD."""
        if isinstance(self.content, str):
            return self.content
        return encoding.decode(self.content, self.encoding) if self.content else ""

    @cached_property
    def json(self) -> Any:
        """The body parsed as JSON, or None if it is not JSON. Halves of characters, as cut emoji, become U+FFFD."""
        text = self.text.removeprefix("\ufeff")
        try:
            value = json.loads(text)
            if _SURROGATE.search(text):
                whole = json.dumps(value, ensure_ascii=False).encode("utf-16", "surrogatepass")
                value = json.loads(whole.decode("utf-16", "replace"))
        except (ValueError, RecursionError):
            return None
        return value

    @cached_property
    def etree(self) -> Any:
        """The root element (lxml) of the page; an empty ``<html>`` if there is nothing in it."""
        return document.parse(self.content if self._is_ascii() else self.text)

    def _is_ascii(self) -> bool:
        """Whether the bytes can be parsed as they are, which saves two copies."""
        return isinstance(self.content, bytes) and self.content.isascii() and encoding.keeps_ascii(self.encoding)

    @cached_property
    def doc(self) -> Document:
        """A PyQuery over ``etree``, with absolute links in a, link, script, img, iframe and form (behaviour R5)."""
        resolve = self._resolve  # with the base of the tree as it came
        document.absolute_links(self.etree, resolve)
        return Document._of([self.etree])

    def css(self, query: str) -> "SelectorList[Selector]":
        """parsel's selectors for a CSS query, ``::text`` and ``::attr(href)`` included; over the tree of `doc`, so links are absolute."""
        return self._selector.css(query)

    def xpath(self, query: str, **variables: Any) -> "SelectorList[Selector]":
        """parsel's selectors for an XPath query, over the tree of `doc`; ``$name`` in it stands for the argument of that name."""
        return self._selector.xpath(query, **variables)

    @cached_property
    def _selector(self) -> "Selector":
        from parsel import Selector  # 40 ms: only for who uses it

        return Selector(root=self.doc[0], type="html")

    # --- links ----------------------------------------------------------------------------------------------------------

    @cached_property
    def base_url(self) -> str:
        """What relative links refer to: ``<base href>`` of the page, else ``url``."""
        return document.base_url(self.etree, self.url)

    @cached_property
    def _resolve(self) -> Callable[[str], str]:
        return document.resolver(self.base_url)

    def urljoin(self, link: str) -> str:
        """``link`` made absolute as a browser would do it; one that cannot be is given back as it is."""
        return self._resolve(link)

    def links(
        self,
        css: str | None = None,
        allow: document.Patterns = None,
        deny: document.Patterns = None,
        same_site: bool = True,
    ) -> list[str]:
        """The absolute http(s) URLs of ``a[href]``, each once, in order of appearance; cheaper than `doc`.

        With ``css`` only those inside (or being) an element that the selector matches; of the page's own host (with or without ``www.``)
        unless ``same_site`` is False; with ``allow`` those that one of the regular expressions matches anywhere, with ``deny`` those
        that none matches. Fragments are kept.
        """
        resolve = self._resolve
        parts = [self.etree] if css is None else document.compiled(css)(self.etree)
        links = dict.fromkeys(resolve(href) for part in document.outermost(parts) for href in document.hrefs(part))
        return list(filter(document.chooser(self.url, allow, deny, same_site), links))


def rebuild_response(fetched: dict[str, Any]) -> Response:
    """A Response from a fetch result as a dict, with any key missing (behaviour R11)."""
    known = ("url", "orig_url", "headers", "cookies", "error", "traceback", "save", "js_script_result")
    response = Response(
        status_code=fetched.get("status_code"),
        content=fetched.get("content", ""),
        time=fetched.get("time", 0),
        **{key: fetched.get(key) for key in known},
    )
    for key in ("redirects", "error_kind", "timings", "proxy"):
        if key in fetched:
            setattr(response, key, fetched[key])
    return response
