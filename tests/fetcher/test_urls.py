"""Pure parts: URLs, addresses, cookies, data: URLs, Retry-After."""

import base64
import string
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspider_lite.fetcher import data_url
from pyspider_lite.fetcher.addresses import is_refused, literal
from pyspider_lite.fetcher.cookies import CookieJar
from pyspider_lite.fetcher.fetch import retry_after
from pyspider_lite.fetcher.urls import InvalidURL, resolve, same_site, sendable, without_password

NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("url", "sent"),
    [
        ("http://a.com/x?y#z", "http://a.com/x?y#z"),
        ("  HTTP://A.com \n", "http://A.com/"),
        ("http://例子.com/路 径?q=中&x=%20y", "http://xn--fsqu00a.com/%E8%B7%AF%20%E5%BE%84?q=%E4%B8%AD&x=%20y"),
        ("http://faß.de/", "http://xn--fa-hia.de/"),
        ("http://💩.la/", "http://xn--ls8h.la/"),
        ("http://a_b.com:65535/", "http://a_b.com:65535/"),
        ("http://a.com\\b?c\\d", "http://a.com/b?c\\d"),
        ("http://a.com\\@b.com/", "http://a.com/@b.com/"),
        ("http://u:p@[::1]:80/", "http://u:p@[::1]:80/"),
        ("http://a.com/%zz%", "http://a.com/%zz%"),
    ],
)
def test_sendable(url, sent):
    assert sendable(url) == sent


@pytest.mark.parametrize(
    "url", ["", "a", "http:/", "http:///x", "http://a:0/", "http://a:x/", "http://a%2eb/", "data:,x"]
)
def test_not_sendable(url):
    with pytest.raises(InvalidURL):
        sendable(url)


@given(st.text(alphabet=string.printable + "éß中😀\x00\ud800"))
def test_whatever_follows_the_host_can_be_sent(rest):
    sent = sendable("http://a.com/" + rest)
    assert sent.isascii()
    assert not set(sent) & set(' "<>\r\n\t\x00')
    assert sendable(sent) == sent


@given(st.text(alphabet=[chr(number) for number in range(256)]))
def test_any_location_is_a_url_or_refused(location):
    with suppress(InvalidURL):
        assert resolve("http://a.com/b?c", location).startswith(("http://", "https://"))


@pytest.mark.parametrize(
    ("first", "url", "same"),
    [
        ("http://a.com/", "http://A.com:80/x", True),
        ("http://a.com/", "https://a.com/", True),
        ("https://a.com/", "http://a.com/", False),
        ("http://a.com:8080/", "https://a.com/", False),
        ("http://a.com/", "http://a.com:81/", False),
        ("http://a.com/", "http://www.a.com/", False),
    ],
)
def test_same_site(first, url, same):
    assert same_site(first, url) is same


def test_passwords_are_not_shown():
    assert without_password("http://u:p@a.com/x@y") == "http://u:***@a.com/x@y"
    assert without_password("http://a.com/x:y@z") == "http://a.com/x:y@z"


@pytest.mark.parametrize(
    ("address", "refused"),
    [
        ("169.254.169.254", True),
        ("169.254.0.1", True),
        ("fe80::1%eth0", True),
        ("febf::1", True),
        ("fd00:ec2::254", True),
        ("100.100.100.200", True),
        ("::ffff:169.254.169.254", True),
        ("64:ff9b::a9fe:a9fe", True),
        ("127.0.0.1", False),
        ("10.0.0.1", False),
        ("100.100.100.201", False),
        ("2001:db8::1", False),
        ("name", False),
    ],
)
def test_addresses(address, refused):
    assert is_refused(address) is refused


@pytest.mark.parametrize("host", ["169.254.169.254", "2852039166", "0xa9fea9fe", "0251.0376.0251.0376"])
def test_spellings_of_an_address(host):
    assert literal(host) == "169.254.169.254"
    assert literal("a.com") is None


# --- cookies ---


def jar_after(*lines, url="http://shop.a.com/x/y"):
    jar = CookieJar(url, {})
    jar.store(url, list(lines), NOW)
    return jar


@pytest.mark.parametrize(
    ("line", "url", "sent"),
    [
        ("a=b", "http://shop.a.com/x/z", "a=b"),
        ("a=b", "http://shop.a.com/xx", ""),
        ("a=b; Path=/", "http://shop.a.com/", "a=b"),
        ("a=b; Path=/", "http://a.com/", ""),
        ("a=b; Path=/; Domain=.a.com", "http://www.a.com/", "a=b"),
        ("a=b; Path=/; Domain=a.com", "http://ba.com/", ""),
        ("a=b; Path=/; Domain=com", "http://shop.a.com/", ""),
        ("a=b; Path=/; Domain=other.com", "http://other.com/", ""),
        ("a=b; Path=/; Secure", "http://shop.a.com/", ""),
        ("a=b; Path=/; Secure", "https://shop.a.com/", "a=b"),
        ("a=b; Path=/; Max-Age=0", "http://shop.a.com/", ""),
        ("a=b; Path=/; Expires=Thu, 01 Jan 1970 00:00:00 GMT", "http://shop.a.com/", ""),
        ("a=b; Path=/; Expires=rubbish", "http://shop.a.com/", "a=b"),
        ('a="b=c, d"; Path=/', "http://shop.a.com/", 'a="b=c, d"'),
        ("rubbish", "http://shop.a.com/x/", ""),
    ],
)
def test_cookie_rules(line, url, sent):
    assert jar_after(line).header(url) == sent


def test_a_cookie_is_replaced_and_taken_back():
    jar = jar_after("a=1; Path=/", "a=2; Path=/")
    assert jar.shown() == {"a": "2"}
    jar.store("http://shop.a.com/", ["a=; Path=/; Max-Age=-1"], NOW)
    assert jar.shown() == {}


# --- data: ---


@pytest.mark.behaviour("F28", "X-F11")
@pytest.mark.parametrize(
    ("url", "content"),
    [
        ("data:,on_start", "on_start"),
        ("data:,a,b%20c", "a,b c"),
        ("data:text/plain;charset=utf-8,%E4%B8%AD", "中"),
        ("data:;charset=gbk,%D6%D0", "中"),
        ("data:;base64,aGk=", b"hi"),
        ("data:;base64,aGk", b"hi"),
        ("data:text/plain;charset=gbk;base64," + base64.b64encode("中".encode("gbk")).decode(), "中"),
        ("data:,", ""),
    ],
)
def test_data_urls(url, content, get):
    """Behaviour F28, mended."""
    assert data_url.decode(url) == content
    response = get(url, save=1)
    assert (response.status_code, response.content, response.time, response.headers) == (200, content, 0.0, {})
    assert (response.url, response.save, response.error) == (url, 1, None)


@pytest.mark.parametrize("url", ["data:", "data:;charset=bogus,x", "data:;charset=hex,x", "data:;base64,*"])
def test_broken_data_urls(url, get):
    response = get(url)
    assert (response.status_code, response.error_kind, response.orig_url) == (599, "invalid-url", url)


@pytest.mark.parametrize(
    ("kind", "name"),
    [("js", "phantomjs"), ("phantomjs", "phantomjs"), ("splash", "splash"), ("puppeteer", "puppeteer")],
)
def test_browsers_are_not_enabled(get, kind, name):
    """Behaviour F33."""
    response = get("http://a.com/", fetch_type=kind)
    assert (response.status_code, response.content, response.error) == (501, f"{name} is not enabled.", None)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("120", 120.0),
        ("Tue, 14 Nov 2023 22:13:50 GMT", 30.0),
        ("Tue, 14 Nov 2023 22:13:00 GMT", 0.0),
        ("99999999999", 604800.0),
        ("-5", None),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after(value, seconds):
    assert retry_after(value, NOW) == seconds
