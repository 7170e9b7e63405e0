"""Pages as they really come: odd, empty, in all encodings; and that `doc` behaves as a plain PyQuery."""

import re
import subprocess
import sys
from typing import Any

import lxml.html
import pytest
from pyquery import PyQuery

from pyspider_lite.models.page import FetchResponse
from pyspider_lite.response import Response, document

PAGE = """<html><head><title>T</title></head><body class="b"><div id="x" class="c d">one <b>two</b><br>three
<p>four</p></div><a href="/a?x=1#f" class="l">A</a><a href=" b.html ">B</a><a>none</a><label for="i">L</label>
<input id="i" name="n" value="v"><ul><li>1</li><li>2</li><li>3</li></ul></body></html>"""


def page(content: bytes | str, content_type: str = "text/html", url: str = "http://site.test/dir/p.html") -> Response:
    return Response.from_fetch(
        FetchResponse(status_code=200, url=url, headers={"Content-Type": content_type}, content=content)
    )


@pytest.mark.parametrize(
    "use",
    [
        lambda d: d("a").attr.href,
        lambda d: d("a").attr["class"],
        lambda d: d("a").attr.class_,
        lambda d: d("label").attr.for_,
        lambda d: d("a").attr("href"),
        lambda d: d("nothing").attr.href,
        lambda d: [e.text() for e in d("li").items()],
        lambda d: [e.text() for e in d.items("li")],
        lambda d: [e.attr.href for e in d("a[href]").items()],
        lambda d: d("ul").find("li").eq(1).text(),
        lambda d: d("li:first").text() + d("li:last").text() + d("li:eq(1)").text(),
        lambda d: d("li").filter(lambda i: i != 1).text(),
        lambda d: d("li").not_(":first").text(),
        lambda d: d("body").text(),
        lambda d: d("div").html(),
        lambda d: d("div").outer_html(),
        lambda d: d("div").children().text(),
        lambda d: d("li").parent().is_("ul"),
        lambda d: d("div").has_class("c"),
        lambda d: d("input").val(),
        lambda d: d("li").end()("title").text(),
        lambda d: d("div")("<i>new</i>").text(),
        lambda d: str(d("div").clone().remove("b")),
        lambda d: d("a").attr(href="/changed").attr.href,
        lambda d: repr(d("a")),
        lambda d: len(d("")),
        lambda d: d("li").map(lambda i, e: i).end().length,
        lambda d: d("div").contents()[:1] == ["one "],
        lambda d: d("a[@href]").text(),
    ],
)
def test_doc_is_a_pyquery(use: Any) -> None:
    plain = PyQuery(lxml.html.fromstring(PAGE))
    plain.make_links_absolute("http://site.test/dir/p.html")
    assert use(page(PAGE).doc) == use(plain)


def test_attributes_can_be_set_and_deleted() -> None:
    link = page(PAGE).doc("a").eq(0)
    link.attr.href = "/1"
    assert link.attr("href") == "/1"
    link.attr["title"] = "t"
    del link.attr.href
    assert (link.attr.href, link.attr.title) == (None, "t")


@pytest.mark.parametrize(
    "content", [b"", b"\x00", b"\x00\x01\x02", bytes(range(256)) * 20, b"<!-- -->", b"<", b"<?xml?>", "\ud800"]
)
def test_any_content_gives_a_document(content: bytes | str) -> None:
    response = page(content)
    assert isinstance(response.doc("body a").text(), str)
    assert isinstance(response.text, str)
    assert response.links() == []
    assert response.json is None


def test_one_absurd_link_does_not_harm_the_others() -> None:
    response = page('<a href="http://[bad">1</a><a href="&#1;x">2</a><a href="ok">3</a>')
    assert [link.attr.href for link in response.doc("a").items()][2] == "http://site.test/dir/ok"
    assert response.doc("a").attr.href == "http://[bad"
    assert response.links()[-1] == "http://site.test/dir/ok"


@pytest.mark.parametrize(
    ("base", "resolved"),
    [
        ("http://other.test/x/", "http://other.test/x/l"),
        ("sub/", "http://site.test/dir/sub/l"),
        ("javascript:1", "http://site.test/dir/l"),
        ("http://[", "http://site.test/dir/l"),
        (" /y/ ", "http://site.test/y/l"),
    ],
)
def test_base_href(base: str, resolved: str) -> None:
    response = page(f'<head><base href="{base}"></head><a href=" l ">1</a>')
    assert response.links(same_site=False) == [resolved]
    assert response.urljoin("l") == resolved
    assert response.doc("a").attr.href == resolved
    assert response.urljoin("l") == resolved


@pytest.mark.parametrize("link", ["/a", "/a/", "/a//b", "//h/x", "/../a", "/a?", "/a#", "/a?b=c#d", "", ".", "/.x", "/a/./b", "?q", "#f", "a;b", "HTTP://H/x", "http://h", "http://h/a?", "http://h/../x", "/a%20b", "/中", "tel:1", "/a.b-c_d~e"])  # fmt: skip
def test_the_short_cut_resolves_as_urljoin_does(link: str) -> None:
    plain = PyQuery(lxml.html.fromstring(f'<div><a href="{link}">x</a></div>'))
    plain.make_links_absolute("http://site.test/dir/p.html?q=1")
    response = page(f'<div><a href="{link}">x</a></div>', url="http://site.test/dir/p.html?q=1")
    assert response.doc("a").attr.href == plain("a").attr.href


@pytest.mark.parametrize("link", ["ht\ntps://site.test/a", "https:\t//site.test/a", "https://site.test/\r\na"])
def test_line_breaks_in_a_link_are_dropped_as_browsers_do(link: str) -> None:
    response = page(f'<a href="{link}">1</a>')
    assert response.links() == [response.urljoin(link)] == ["https://site.test/a"]
    assert page(f'<head><base href="{link}"></head><a href="b">1</a>').links() == ["https://site.test/b"]


def test_links_are_absolute_unique_and_in_order() -> None:
    response = page('<p><a href="/2">a</a><a href="/1#f">b</a></p><a href="/2">c</a><a href="mailto:x@y">d</a><a>e</a>')
    assert response.links() == ["http://site.test/2", "http://site.test/1#f"]
    assert response.links("p a:last") == ["http://site.test/1#f"]
    assert response.links("p") == response.links()


OF_A_SHOP = """<nav><a href="/item/1">1</a></nav><a href="/item/2?from=ad">2</a><a href="/about">3</a><a href="//www.Site.test/item/3">4</a>
<a href="https://SITE.test:8443/item/4">5</a><a href="http://other.test/item/5">6</a><a href="http://site.test.evil.test/item/6">7</a>
<a href="http://[bad">8</a><a href="ftp://site.test/item/7">9</a>"""


def test_capitals_and_line_breaks_in_a_scheme_are_no_other_scheme() -> None:
    links = '<a href="HTTPS://site.test/a"><a href="Http://Other.Test/b"><a href="ht\ntps://site.test/c"><a href="MAILTO:a@site.test">'
    assert page(links).links() == ["https://site.test/a", "https://site.test/c"]
    assert page(links).links(same_site=False) == ["https://site.test/a", "http://Other.Test/b", "https://site.test/c"]
    assert [a.attr.href for a in page(links).doc("a").items()][-1] == "MAILTO:a@site.test"
    based = page('<base href="HTTPS://site.test/x/"><a href="a">')
    assert based.links() == ["https://site.test/x/a"]


@pytest.mark.parametrize(
    ("choice", "found"),
    [
        ({}, ["/item/1", "/item/2?from=ad", "/about", "//www.Site.test/item/3", "//SITE.test:8443/item/4"]),
        ({"same_site": False, "allow": r"/item/[56]"}, ["//other.test/item/5", "//site.test.evil.test/item/6"]),
        ({"allow": r"/item/\d$"}, ["/item/1", "//www.Site.test/item/3", "//SITE.test:8443/item/4"]),
        ({"allow": [r"about", re.compile(r"/ITEM/1", re.I)]}, ["/item/1", "/about"]),
        ({"allow": "/item/", "deny": [r"\?", r":8443"]}, ["/item/1", "//www.Site.test/item/3"]),
        ({"css": "nav", "deny": "about"}, ["/item/1"]),
        ({"allow": ()}, ["/item/1", "/item/2?from=ad", "/about", "//www.Site.test/item/3", "//SITE.test:8443/item/4"]),
    ],
)
def test_which_links(choice: dict[str, Any], found: list[str]) -> None:
    whole = [one if one.startswith("//") else f"//site.test{one}" for one in found]
    assert [link.partition(":")[2] for link in page(OF_A_SHOP).links(**choice)] == whole


def test_nested_matches_are_gone_through_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in pages whose tags are never closed: all links of each match would be the square of them."""
    asked = []
    hrefs = document.hrefs
    monkeypatch.setattr(document, "hrefs", lambda element: asked.append(element) or hrefs(element))
    deep = "".join(f'<section><a href="/{number}">x</a>' for number in range(100))
    response = page(
        f'<body>{deep}{"</section>" * 100}<a href="/out">x</a><section><a href="/in">x</a></section></body>'
    )
    assert response.links("section") == [
        *(f"http://site.test/{number}" for number in range(100)),
        "http://site.test/in",
    ]
    assert len(asked) == 2


@pytest.mark.parametrize("url", ["http://xn--mnchen-3ya.test/", "http://münchen.test/"])
def test_a_host_is_the_same_in_letters_and_in_ascii(url: str) -> None:
    links = [
        "http://münchen.test/a",
        "http://www.xn--mnchen-3ya.test/b",
        "http://munchen.test/c",
        f"http://{'ü' * 70}.test/d",
    ]
    assert page("".join(f'<a href="{link}">x</a>' for link in links), url=url).links() == links[:2]


def test_a_wrong_pattern_says_so() -> None:
    with pytest.raises(re.error):
        page("").links(allow="(")


@pytest.mark.parametrize(
    ("label", "codec"),
    [("gb2312", "gb18030"), ("GBK", "gb18030"), ("iso-8859-1", "cp1252"), ("Shift_JIS", "cp932"), ("euc-kr", "cp949")],
)
def test_labels_are_read_as_browsers_read_them(label: str, codec: str) -> None:
    text = {"cp1252": "“quoted” €", "cp932": "①髙", "cp949": "똠방각하"}.get(codec, "㐀中")
    assert page(text.encode(codec), f"text/html; charset={label}").text == text


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("gb18030", "这是一段足够长的中文文本，用来让检测器识别出编码。" * 5),
        ("big5", "這是一段足夠長的中文文本用來讓檢測器識別出編碼。" * 5),
        ("cp1251", "Это достаточно длинный русский текст для определения кодировки. " * 5),
        ("shift_jis", "これは日本語の文章です。文字コードを判別するための長さがあります。" * 5),
    ],
)
def test_detection(codec: str, text: str) -> None:
    assert page(text.encode(codec)).text == text


@pytest.mark.behaviour("R3")
@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("cp1252", "Le café est fermé à midi."),
        (
            "cp1252",
            "Élections : résultats définitifs dans le département, près de Besançon, où la participation a été élevée.",
        ),
        ("cp1252", "Der Bürgermeister erklärte, dass für die Schüler größere Räume nötig sind."),
        ("cp1252", "A população não está satisfeita. Amanhã haverá uma reunião em São Paulo."),
        ("cp1252", "Tämä on ensimmäinen kerta, kun hän lähtee yöllä töihin. Täällä ei ole mitään syötävää."),
        ("cp1252", "The café “sells” tea for £5 – it’s naïve to expect less."),
        ("cp1250", "Dzieci są szczęśliwe, że pójdą do szkoły. Źle się czuję, powiedział żołnierz."),
        ("iso8859_2", "Dzieci są szczęśliwe, że pójdą do szkoły. Źle się czuję, powiedział żołnierz."),
        ("cp1250", "Příliš žluťoučký kůň úpěl ďábelské ódy."),
        ("cp1250", "Az árvíztűrő tükörfúrógép őrzi a hűvös erdőt."),
        ("cp1254", "Çocuklar okula gideceği için mutlu. Işık çok güzel, dedi öğretmen."),
        ("cp1257", "Vaikai džiaugiasi, kad eis į mokyklą. Aš noriu gerti šaltą vandenį."),
    ],
)
def test_letters_tell_latin_encodings_apart(codec: str, text: str) -> None:
    """None of them is declared; what the letters leave open is windows-1252, as in browsers."""
    assert page(f"<title>x</title><p>{text}</p>".encode(codec)).doc("p").text() == text


def test_a_few_illegal_bytes_do_not_change_the_encoding() -> None:
    assert page("价格很便宜的商品".encode() * 20 + b"\xff").encoding == "utf-8"


def test_setting_the_encoding_drops_all_that_was_made() -> None:
    response = page('{"a": "中"}'.encode("gbk"), "text/html; charset=latin-1")
    before = (response.text, response.json, response.doc.text())
    response.encoding = "gbk"
    assert response.json == {"a": "中"}
    assert "中" in response.doc.text()
    assert (response.text, response.json, response.doc.text()) != before


@pytest.mark.parametrize("label", ["utf-7", "UTF7", "unicode-1-1-utf-7"])
def test_utf_7_is_no_encoding_of_pages(label: str) -> None:
    hidden = b"<title>a+ADw-script+AD4-b</title>"
    declared = page(b'<meta charset="' + label.encode() + b'">' + hidden)
    assigned = page(hidden)
    assigned.encoding = label
    for response in (page(hidden, f"text/html; charset={label}"), declared, assigned):
        assert response.doc("title").text() == "a+ADw-script+AD4-b"


@pytest.mark.behaviour("R2")
@pytest.mark.parametrize("label", ["no-such-thing", "", "hex", "utf-7", "a\0b", "\ud800"])
def test_an_unknown_encoding_is_detected(label: str) -> None:
    for content in ("价格很便宜的商品，质量也很好".encode("gbk") * 5, "中文 é".encode(), b"plain"):
        response = page(content)
        expected = response.text
        response.encoding = label
        assert response.text == expected


def test_importing_the_package_is_light() -> None:
    code = (
        "import pyspider_lite, sys; print([m for m in ('lxml', 'requests', 'msgspec', 'pyquery') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"
