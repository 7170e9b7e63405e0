"""A task becomes a request: defaults, precedence, validators, and clear sentences for what is wrong."""

import pytest

from pyspider_lite.fetcher.request import Defaults, Proxy, build, parse_proxy
from pyspider_lite.models.page import Dispatch

OK = {"process": {"ok": True}, "fetch": {"headers": {"ETag": '"e"', "last-modified": "Mon"}}}


def request(fetch=None, defaults=None, **task):
    task = {"taskid": "t", "project": "p", "url": "http://a.com/", **task}
    return build(Dispatch(fetch=fetch or {}, **task), defaults or Defaults())


@pytest.mark.behaviour("F15")
def test_defaults():
    made = request()
    assert (made.method, made.timeout, made.connect_timeout, made.max_redirects) == ("GET", 120.0, 20.0, 5)
    assert (made.allow_redirects, made.validate_cert, made.robots_txt) == (True, True, False)
    assert (made.body, made.proxy, made.cookies) == (None, None, {})


def test_null_means_the_default():
    names = "method headers cookies data timeout connect_timeout proxy max_redirects use_gzip validate_cert etag"
    assert request(dict.fromkeys(names.split())) == request()


@pytest.mark.behaviour("F16")
@pytest.mark.parametrize("header", ["user-agent", "User-Agent", "USER-AGENT"])
def test_user_agent(header):
    assert request({"user_agent": "b"}, Defaults(user_agent="c")).headers["User-Agent"] == "b"
    assert request({"headers": {header: "a"}, "user_agent": "b"}).headers["User-Agent"] == "a"
    assert request(None, Defaults(user_agent="c")).headers["User-Agent"] == "c"


@pytest.mark.behaviour("F15")
def test_gzip_switch():
    assert request({"use_gzip": False}).headers["Accept-Encoding"] == "identity"
    assert request({"headers": {"accept-encoding": "br"}}).headers["Accept-Encoding"] == "br"


@pytest.mark.behaviour("X-F9")
@pytest.mark.parametrize(
    ("data", "body"),
    [({}, None), ("", None), ([], None), ({"a": [1, 2], "b": "ü"}, b"a=1&a=2&b=%C3%BC"), ([("a", 1)], b"a=1"),
     ("[BASE64-DATA]/wD+[/BASE64-DATA]", b"\xff\x00\xfe"), ("[BASE64-DATA]no![/BASE64-DATA]", b"[BASE64-DATA]no![/BASE64-DATA]"),
     ("[BASE64-DATA][/BASE64-DATA]", None), ("x[BASE64-DATA]/w==[/BASE64-DATA]", b"x[BASE64-DATA]/w==[/BASE64-DATA]")],
)  # fmt: skip
def test_data(data, body):
    assert request({"data": data}).body == body


@pytest.mark.behaviour("F18")
@pytest.mark.parametrize(
    ("fetch", "track", "unconditional", "sent"),
    [
        ({}, OK, False, ('"e"', "Mon")),
        ({"etag": True, "last_modified": True}, OK, False, ('"e"', "Mon")),
        ({}, OK, True, (None, None)),
        ({}, {**OK, "process": {"ok": False}}, False, (None, None)),
        ({}, {}, False, (None, None)),
        ({}, {"process": None, "fetch": []}, False, (None, None)),
        ({"etag": False}, OK, False, (None, "Mon")),
        ({"last_modifed": False}, OK, False, ('"e"', None)),
        ({"etag": "x", "last_modified": "Tue"}, {}, False, ("x", "Tue")),
        ({"etag": "x"}, OK, True, ("x", None)),
        ({"headers": {"if-none-match": "own"}}, OK, False, ("own", "Mon")),
        ({"method": "POST"}, OK, False, (None, None)),
    ],
)
def test_validators(fetch, track, unconditional, sent):
    """Behaviour F18, H55, demand UA11."""
    headers = request(fetch, track=track, unconditional=unconditional).headers
    assert (headers.get("If-None-Match"), headers.get("If-Modified-Since")) == sent


@pytest.mark.behaviour("F17")
@pytest.mark.parametrize(
    ("text", "proxy"),
    [
        ("host", Proxy("http://host:8080")),
        ("host:3128", Proxy("http://host:3128")),
        ("u:p%40@host:1", Proxy("http://host:1", "u", "p@")),
        ("https://host", Proxy("https://host:443")),
        ("socks5h://u:p@host", Proxy("socks5h://host:1080", "u", "p")),
        ("[::1]:3128", Proxy("http://[::1]:3128")),
    ],
)
def test_proxies(text, proxy):
    assert parse_proxy(text) == proxy
    assert request({"proxy": text}).proxy == proxy
    assert request(None, Defaults(proxy=text)).proxy == proxy
    assert request({"proxy": False}, Defaults(proxy=text)).proxy is None


@pytest.mark.parametrize(
    ("fetch", "sentence"),
    [
        ({"timeout": 0}, "timeout must be a positive number of seconds, not 0"),
        ({"timeout": True}, "timeout must be a positive number"),
        ({"timeout": float("nan")}, "timeout must be a positive number"),
        ({"connect_timeout": -1}, "connect_timeout must be"),
        ({"max_redirects": "5"}, "max_redirects must be a whole number from 0, not '5'"),
        ({"method": "GET /"}, "method must be a word"),
        ({"method": 1}, "method must be a word"),
        ({"headers": [1]}, "headers must be a dict, not list"),
        ({"headers": {"a b": "c"}}, "'a b' in headers is no header name"),
        ({"headers": {"A": "b\r\nC: d"}}, "the header A has a line break"),
        ({"headers": {"A": {}}}, "the header A must be str, not dict"),
        ({"user_agent": "a\nb"}, "the header user_agent has a line break"),
        ({"cookies": "a=b"}, "cookies must be a dict, not str"),
        ({"cookies": {"a": "b;c"}}, "the cookie 'a'"),
        ({"cookies": {"a": "b\r\nX: y"}}, "line break"),
        ({"data": 5}, "data must be str, bytes"),
        ({"proxy": 5}, "proxy must be"),
        ({"proxy": "ftp://u:secret@h"}, "the proxy 'h' has the scheme 'ftp'"),
        ({"proxy": "u:secret@h:port"}, "the proxy 'h:port' is no host:port"),
        ({"proxy": "u:secret@"}, "names no host"),
    ],
)
def test_refusals(fetch, sentence):
    with pytest.raises(ValueError) as caught:
        request(fetch)
    assert sentence in str(caught.value)
    assert "secret" not in str(caught.value)


@pytest.mark.behaviour("F16")
def test_names_of_headers_are_canonical():
    headers = request({"headers": {"x-a": "1", "CONTENT-type": "text/x", "X-UA-Compatible": "e"}}).headers
    assert headers.items() >= {"X-A": "1", "Content-Type": "text/x", "X-Ua-Compatible": "e"}.items()
