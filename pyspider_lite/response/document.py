"""The parsed page: markup to an lxml tree, its links made absolute, and the PyQuery that scripts see as ``response.doc``.

`Document` behaves as `pyquery.PyQuery` and is several times cheaper in what scripts do for each page: selectors are compiled
once for each process, and ``items()`` and ``attr`` make no class and no translator for each element.
Nothing here raises on a page, however odd it is; only a wrong selector raises.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any, cast
from urllib.parse import urljoin, urlsplit

import lxml.html
from lxml import etree
from pyquery import PyQuery
from pyquery.cssselectpatch import JQueryTranslator

#: a regular expression, several, or none
Patterns = str | re.Pattern[str] | Iterable[str | re.Pattern[str]] | None

#: the attributes in which `absolute_links` looks for a URL (behaviour R5)
LINK_ATTRIBUTES = {"a": "href", "link": "href", "script": "src", "img": "src", "iframe": "src", "form": "action"}

# huge_tree: else all that is nested deeper than 255 is lost, and so is text of 10 MB without an element in it
_parser = lxml.html.HTMLParser(encoding="utf-8", huge_tree=True)
_translator = JQueryTranslator(xhtml=False)
_hrefs = etree.XPath("descendant-or-self::a/@href", smart_strings=False)
#: control characters that no XML tree can hold; tab, newline and return stay
_CONTROL = bytes(code for code in range(32) if code not in b"\t\n\r") + b"\x7f"

# --- parsing ------------------------------------------------------------------------------------------------------------


def parse(text: str | bytes) -> Any:
    """The root element of ``text``, bytes of which are ASCII; an empty ``<html>`` for what has no element in it (user demand: never an
    exception).

    Controls are left out for parsing only. The tree is made from UTF-8 whatever the page was in, so that illegal bytes and
    encoding declarations inside it cannot break it.
    """
    markup = (text.encode("utf-8", "replace") if isinstance(text, str) else text).translate(None, _CONTROL)
    if markup.startswith(b"\xef\xbb\xbf"):
        markup = markup[3:]
    try:
        root = lxml.html.fromstring(markup, parser=_parser)
    except (etree.LxmlError, ValueError, AssertionError, RecursionError):
        return lxml.html.Element("html")
    # a page of nothing but a comment or a processing instruction
    return root if isinstance(root.tag, str) else lxml.html.Element("html")


# --- links --------------------------------------------------------------------------------------------------------------

# What `urljoin` would give back unchanged, or put behind the origin unchanged: no empty query or fragment, no dot segments.
_PATH = r"/(?:[\w%~-][\w%~.-]*/)*(?:[\w%~-][\w%~.-]*)?(?:\?[\w%~.=&+/-]+)?"
_PLAIN_PATH = re.compile(_PATH, re.ASCII)
_PLAIN_URL = re.compile(rf"https?://[\w.-]+(?::\d+)?{_PATH}", re.ASCII)
# jQuery plug-ins' schemes that PyQuery leaves untouched, white space included
_LEFT_ALONE = ("tel:", "callto:", "sms:")
_BREAKS = str.maketrans("", "", "\t\r\n")
#: of a URL without anything odd, as those of nearly all pages are
_ORIGIN = re.compile(r"https?://[a-z0-9.-]+(?::\d+)?(?=[/?#]|$)", re.ASCII)


def base_url(root: Any, url: str) -> str:
    """What links of the page are relative to: ``<base href>`` if there is a usable one, else the page's own ``url``."""
    base = root if root.tag == "base" else root.find(".//base[@href]")
    if base is None:
        return url
    try:
        joined = _join(url, (base.get("href") or "").strip())
    except ValueError:
        return url
    return joined if joined.startswith(("http://", "https://")) else url


def resolver(base: str) -> Callable[[str], str]:
    """A function that makes one link absolute; a link that cannot be resolved stays as it is."""
    try:
        origin = _origin(base)
    except ValueError:
        return str
    plain_path, plain_url = _PLAIN_PATH.fullmatch, _PLAIN_URL.fullmatch

    def resolve(link: str) -> str:
        link = link.strip()
        if origin and plain_path(link):
            return origin + link
        if plain_url(link):
            return link
        try:
            return _join(base, link)
        except ValueError:
            return link

    return resolve


def _join(base: str, link: str) -> str:
    """As `urljoin`, which gives a link of another scheme back as it is written: ``HTTPS://`` is ``https://`` (RFC 3986, 3.1), and a tab or
    line break in the middle is none to browsers."""
    joined = urljoin(base, link.translate(_BREAKS))
    if joined.startswith(("http://", "https://")) or urlsplit(joined).scheme not in ("http", "https"):
        return joined
    return urlsplit(joined).geturl()


def _origin(url: str) -> str | None:
    """Scheme, host and port of an http(s) URL; ValueError for what is none."""
    plain = _ORIGIN.match(url)
    if plain:
        return plain[0]
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}" if parts.scheme in ("http", "https") and parts.netloc else None


def chooser(url: str, allow: Patterns, deny: Patterns, same_site: bool) -> Callable[[str], bool]:
    """Whether a link of the page ``url`` is wanted: http(s), of the same host (with or without ``www.``) if ``same_site``, matched
    somewhere by one of ``allow`` if there are any, and by none of ``deny``. Raises re.error for a wrong pattern."""
    schemes = ("http://", "https://")
    # most links are of the page's own origin
    own = f"{url[: url.find('/', 8)]}/" if url.startswith(schemes) and url.find("/", 8) > 0 else None
    allowed, denied = _patterns(allow), _patterns(deny)

    def elsewhere(link: str) -> bool:
        return not link.startswith(schemes) or (same_site and _site(url) not in (None, _site(link)))

    def wanted(link: str) -> bool:
        if not (own and link.startswith(own)) and elsewhere(link):
            return False
        if allowed and not any(one.search(link) for one in allowed):
            return False
        return not (denied and any(one.search(link) for one in denied))

    return wanted


def _site(url: str) -> str | None:
    """The host without ``www.``, as it is asked for: ``http://münchen.test`` and ``http://xn--mnchen-3ya.test`` are one."""
    try:
        host = (urlsplit(url).hostname or "").removeprefix("www.")
        return host if host.isascii() else host.encode("idna").decode()
    except ValueError:
        return None


def _patterns(given: Patterns) -> list[re.Pattern[str]]:
    return [re.compile(one) for one in ([given] if isinstance(given, str | re.Pattern) else given or ())]


def hrefs(element: Any) -> list[str]:
    """``href`` of every ``a`` in (or being) the element, as it is written. Without an object for each element it takes half the time."""
    return cast("list[str]", _hrefs(element))


def outermost(elements: Sequence[Any]) -> Iterator[Any]:
    """Those of the elements, which are in the order of the page, that are in none of the others."""
    if len(elements) < 2:
        yield from elements
        return
    within: set[Any] = set()
    for element in elements:
        if element not in within:
            yield element
            # each element of the page is walked over once at most
            within.update(element.iterdescendants())


def absolute_links(root: Any, resolve: Callable[[str], str]) -> None:
    """Make the links of `LINK_ATTRIBUTES` absolute, in place."""
    for element in root.iter(*LINK_ATTRIBUTES):
        name = LINK_ATTRIBUTES[element.tag]
        link = element.get(name)
        if link is None or link.startswith(_LEFT_ALONE):
            continue
        absolute = resolve(link)
        if absolute != link:
            try:
                element.set(name, absolute)
            except ValueError:  # a character reference made a control character of it
                continue


# --- querying -----------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=2048)
def _xpath_text(selector: str, prefix: str) -> str:
    return cast(str, _translator.css_to_xpath(selector.replace("[@", "["), prefix))


@lru_cache(maxsize=2048)
def compiled(selector: str) -> Callable[[Any], list[Any]]:
    """The CSS selector (with jQuery's pseudo classes) as a function from an element to its matches, itself included."""
    return cast("Callable[[Any], list[Any]]", etree.XPath(_xpath_text(selector, "descendant-or-self::")))


class Attributes:
    """``query.attr``: ``.attr.href``, ``.attr['href']``, ``.attr('href')`` and the setting forms of PyQuery."""

    __slots__ = ("_query",)
    _query: "Document"

    def __init__(self, query: "Document") -> None:
        object.__setattr__(self, "_query", query)

    def __getattr__(self, name: str) -> Any:
        query = self._query
        if not query:
            return None
        value = query[0].get(name)
        # class_ and for_ are spelled so because the bare words are Python's
        return value if value is not None or name[-1:] != "_" else _full_attr(query, name)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if len(args) == 1 and type(args[0]) is str:
            return self.__getattr__(args[0])
        return _full_attr(self._query, *args, **kwargs)

    __getitem__ = __getattr__

    def __setattr__(self, name: str, value: Any) -> None:
        _full_attr(self._query, name, value)

    __setitem__ = __setattr__

    def __delattr__(self, name: str) -> None:
        self._query.remove_attr(name)

    __delitem__ = __delattr__

    def __repr__(self) -> str:
        return "<flexible_element attr>"


_full_attr = PyQuery.__dict__["attr"].pget


class Document(PyQuery):  # type: ignore[misc]
    """A PyQuery over a page."""

    # PyQuery sets these on each object; as class attributes they cost nothing for each element
    _base_url: str | None = None
    _translator = _translator
    parser: str | None = None
    namespaces: dict[str, str] | None = None

    @classmethod
    def _of(cls, elements: list[Any], parent: Any = None) -> "Document":
        query = cls.__new__(cls)
        list.__init__(query, elements)
        query._parent = _no_parent if parent is None else parent
        if parent is not None and parent.namespaces is not None:
            query.namespaces = parent.namespaces
        return query

    def _css_to_xpath(self, selector: str, prefix: str = "descendant-or-self::") -> str:
        if self._translator is _translator:
            return _xpath_text(selector, prefix)
        return cast(str, super()._css_to_xpath(selector, prefix))

    def _copy(self, *args: Any, **kwargs: Any) -> "Document":
        if len(args) == 1 and not kwargs.keys() - {"parent"}:
            elements = args[0]
            if isinstance(elements, etree._Element):
                return self._of([elements], kwargs.get("parent"))
            if isinstance(elements, list):
                return self._of(elements, kwargs.get("parent"))
        return cast("Document", super()._copy(*args, **kwargs))

    def __call__(self, *args: Any, **kwargs: Any) -> "Document":
        if len(args) == 1 and not kwargs and type(args[0]) is str and self.namespaces is None:
            selector = args[0]
            if selector and selector[0] != "<":
                matches = compiled(selector)
                if len(self) == 1:
                    return self._of(matches(self[0]), self)
                return self._of([match for element in self for match in matches(element)], self)
        return cast("Document", super().__call__(*args, **kwargs))

    def items(self, selector: str | None = None) -> Iterator["Document"]:
        """Each element of the selection, or of what ``selector`` finds in it, as a Document of its own."""
        for element in self(selector) if selector else self:
            yield self._of([element], self)

    def text(self, *args: Any, **kwargs: Any) -> Any:
        """The text, as PyQuery gives it; without its line breaks where elements are nested deeper than PyQuery can follow."""
        try:
            return super().text(*args, **kwargs)
        except RecursionError:
            return " ".join(" ".join(text for element in self for text in element.xpath(".//text()")).split())

    def _set_attr(self, value: Any) -> None:
        raise NotImplementedError

    # PyQuery refuses to have the property itself assigned
    attr = property(Attributes, _set_attr)


_no_parent = PyQuery([])._parent
