"""Pages in the encodings and states in which they come, and the ways to look into them (demands UA8, UA9, UB27)."""

from typing import Any

import pytest

from pyspider_lite.models.page import FetchResponse
from pyspider_lite.response import Response

CHINESE = "产品名称：无线鼠标，价格便宜，欢迎选购"


def page(content: bytes | str, content_type: str = "text/html") -> Response:
    headers = {"Content-Type": content_type}
    return Response.from_fetch(
        FetchResponse(status_code=200, url="http://site.test/dir/p.html", headers=headers, content=content)
    )


def html(text: str, codec: str, head: str = "") -> bytes:
    return f"<html><head>{head}<title>{text}</title></head><body><p>{text}</p></body></html>".encode(codec)


@pytest.mark.behaviour("R2", "R3")
@pytest.mark.parametrize(
    ("content", "content_type", "encoding"),
    [
        # a byte order mark wins over the header, the header over the page, <meta> over the XML declaration
        (b"\xef\xbb\xbf" + html(CHINESE, "utf-8"), "text/html; charset=gbk", "UTF-8-SIG"),
        (html(CHINESE, "utf-16"), "text/html; charset=gbk", "UTF-16"),
        (b"\xfe\xff" + html(CHINESE, "utf-16-be"), "text/html", "UTF-16"),
        (html(CHINESE, "gbk", "<meta charset=utf-8>"), "text/html; charset=GBK", "GBK"),
        (html(CHINESE, "gbk", "<meta charset=gbk>"), "text/html", "gbk"),
        (html(CHINESE, "gbk", '<meta http-equiv=x content="text/html; charset=gb2312">'), "text/html", "gb18030"),
        (b'<?xml version="1.0" encoding="gbk"?>' + html(CHINESE, "gbk"), "text/html", "gbk"),
        (b'<?xml version="1.0" encoding="utf-8"?>' + html(CHINESE, "gbk", "<meta charset=gbk>"), "", "gbk"),
        # what nobody knows, what is in a comment and what cannot be is passed over
        (html(CHINESE, "gbk", "<meta charset=gbk>"), "text/html; charset=bogus", "gbk"),
        (html(CHINESE, "gbk", "<!-- <meta charset=utf-8> --><meta charset=gbk>"), "text/html", "gbk"),
        (html(CHINESE, "utf-8", "<meta charset=utf-16>"), "text/html", "utf-8"),
        (html(CHINESE, "gb18030"), "text/html; charset=bogus", "gb18030"),
        (html(CHINESE, "utf-8"), "text/html; charset=unicode_escape", "unicode_escape"),
        # without any declaration
        (html(CHINESE, "utf-8"), "text/html", "utf-8"),
        (html(CHINESE, "gb18030"), "text/html", "gb18030"),
        ('<?xml version="1.0"?><p>'.encode("utf-16-le") + CHINESE.encode("utf-16-le"), "", "utf-16le"),
    ],
)
def test_the_order_is_a_browsers(content: bytes, content_type: str, encoding: str) -> None:
    response = page(content, content_type)
    assert response.encoding == encoding
    assert CHINESE in response.text
    assert CHINESE in response.doc("p").text()


@pytest.mark.behaviour("R3")
@pytest.mark.parametrize(
    ("label", "codec", "text"),
    [
        ("latin1", "cp1252", "“€”"),
        ("us-ascii", "cp1252", "“€”"),
        (" ISO-8859-9 ", "cp1254", "€ğ"),
        ("x-sjis", "cp932", "①髙"),
        ("windows-31j", "cp932", "①髙"),
        ("csbig5", "big5hkscs", "啟"),
        ("ks_c_5601-1987", "cp949", "똠"),
        ("x-gbk", "gb18030", "㐀"),
        ("dos-874", "cp874", "“ก”"),
        ("x-mac-cyrillic", "mac_cyrillic", "Я"),
        ("unicode-1-1-utf-8", "utf-8", "中"),
        # those that browsers do not know, and Python does
        ("cp850", "cp850", "±é"),
        ("hz-gb-2312", "hz", "中"),
        ("utf-32", "utf-32", "中"),
    ],
)
def test_labels_as_browsers_know_them(label: str, codec: str, text: str) -> None:
    response = page(text.encode(codec), f'text/html; charset="{label}"')
    assert response.text == text
    response.encoding = "ascii"
    response.encoding = label
    assert response.text == text


@pytest.mark.parametrize(
    ("codec", "text"),
    [
        ("gb18030", CHINESE),
        ("big5", "產品名稱：無線滑鼠，價格便宜，歡迎選購"),
        ("cp1251", "Купить беспроводную мышь недорого с доставкой"),
        ("koi8_r", "Купить беспроводную мышь недорого с доставкой"),
        ("cp932", "ワイヤレスマウスを安く購入できます。送料無料です"),
        ("euc_jp", "ワイヤレスマウスを安く購入できます。送料無料です"),
        ("iso2022_jp", "ワイヤレスマウスを安く購入できます。送料無料です"),
        ("cp949", "무선 마우스를 저렴하게 구입하세요. 무료 배송"),
        ("cp1253", "Αγοράστε ένα ασύρματο ποντίκι φθηνά"),
        ("cp1256", "اشتر فأرة لاسلكية بسعر رخيص مع شحن مجاني"),
        ("cp874", "ซื้อเมาส์ไร้สายราคาถูกพร้อมจัดส่งฟรี"),
    ],
)
def test_detection_sees_the_text_and_not_the_markup(codec: str, text: str) -> None:
    script = "<script>function x(){return document.cookie}</script>" * 20
    assert page(html(text, codec, script)).doc("p").text() == text


@pytest.mark.behaviour("R3", "R4", "R5", "R6")
def test_an_assigned_encoding_renews_all() -> None:
    response = page('{"a": "中"}<a href=/x>中</a>'.encode("gbk"), "text/html; charset=latin1")

    def seen() -> Any:
        css = response.css("a::text").get()
        return response.text, response.doc("a").text(), response.etree.findtext(".//a"), css, response.links()

    wrong = seen()
    response.encoding = "gbk"
    assert seen() == ('{"a": "中"}<a href=/x>中</a>', "中", "中", "中", ["http://site.test/x"])
    assert all(old != new for old, new in zip(wrong[:4], seen()[:4], strict=True))


@pytest.mark.behaviour("R4")
def test_half_an_emoji_in_json_is_no_reason_to_fail() -> None:
    response = page(rb'{"cut": "a\ud83d", "whole": "\ud83d\ude00", "\udc00": [1, null]}', "application/json")
    assert response.json == {"cut": "a\ufffd", "whole": "😀", "\ufffd": [1, None]}


@pytest.mark.behaviour("R6")
@pytest.mark.parametrize("depth", [300, 1500, 100_000])
def test_deeply_nested_pages_keep_what_comes_first(depth: int) -> None:
    response = page("<p>one</p><a href=/x>two</a>" + "<div>" * depth + "deep" + "</div>" * depth)
    assert response.links() == ["http://site.test/x"]
    assert response.doc("p, a").text() == "one two"
    assert response.doc.text().split()[:2] == ["one", "two"]
    assert response.xpath("//a/@href").get() == "http://site.test/x"


@pytest.mark.behaviour("R5", "R6")
@pytest.mark.parametrize(
    "content", [b"", "", b"\0", bytes(range(256)) * 40, b"\x89PNG\r\n\x1a\n\0\0", "<!-- -->", b"<"]
)
def test_no_content_is_an_exception(content: Any) -> None:
    response = page(content)
    assert response.doc("a").attr.href is None
    assert response.css("a::attr(href)").getall() == response.xpath("//a").getall() == response.links() == []
    assert isinstance(response.doc.text(), str)
    assert response.json is None


def test_css_xpath_and_doc_look_into_the_same_tree() -> None:
    response = page('<ul><li>1<li>2</ul><a href="x" title="t">A</a><a href=" /y ">B</a>')
    assert response.css("li::text").getall() == ["1", "2"]
    assert response.css("a::attr(href)").getall() == ["http://site.test/dir/x", "http://site.test/y"]
    assert response.xpath("//a[@title=$t]/@href", t="t").get() == "http://site.test/dir/x"
    assert response.css("a")[1].xpath("text()").get() == "B"
    assert [a.attr.href for a in response.doc("a").items()] == response.css("a::attr(href)").getall()
    assert response.css("nothing").get() is None
    with pytest.raises(ValueError, match="XPath error"):
        response.xpath("//[")


def test_urljoin_is_that_of_the_page() -> None:
    response = page('<base href="/root/">')
    assert response.urljoin(" x?a=1\n") == "http://site.test/root/x?a=1"
    assert response.urljoin("//other.test/") == "http://other.test/"
    assert response.urljoin("http://[") == "http://["
