"""``self.crawl("curl ...")``: commands as today's browsers copy them, and as people write them (behaviour H70 to H72)."""

from typing import Any

import pytest

from pyspider_lite import BaseHandler
from pyspider_lite.handler.curl import curl_to_arguments

CHROME = r"""curl 'https://shop.test/api/search?page=2' \
  -H 'accept: application/json, text/plain, */*' \
  -H 'accept-language: en-US,en;q=0.9' \
  -b 'session=abc; theme="dark"' \
  -H 'content-type: application/json' \
  -H 'priority: u=1, i' \
  --data-raw $'{"q":"it\'s \u4e2d\u6587 \ud83d\ude00\\n","n":1}' \
  --compressed \
  --insecure"""
FIREFOX = (
    "curl 'https://shop.test/login' --compressed -X POST -H 'User-Agent: Mozilla/5.0 (X11)' -H 'Cookie: a=1; b=2' "
    "-H 'TE: trailers' --data-raw 'user=me&pass=p%40ss'"
)
SAFARI = r"""curl 'https://shop.test/' \
-X 'GET' \
-H 'Accept: text/html' \
-H 'Sec-Fetch-Mode: navigate'"""
WINDOWS = (
    'curl ^"https://shop.test/x?a=1^&b=^%^7B^" ^\r\n  -H ^"accept: */*^" ^\r\n'
    '  --data-raw ^"^{^\\^"q^\\^":1^}^" ^\r\n  --compressed'
)


@pytest.mark.behaviour("H70", "H71", "H72", "X-C2")
@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (
            CHROME,
            {
                "urls": ["https://shop.test/api/search?page=2"],
                "headers": {
                    "accept": "application/json, text/plain, */*",
                    "accept-language": "en-US,en;q=0.9",
                    "content-type": "application/json",
                    "priority": "u=1, i",
                    "Cookie": 'session=abc; theme="dark"',
                },
                "data": '{"q":"it\'s 中文 😀\\n","n":1}',
                "method": "POST",
                "use_gzip": True,
                "validate_cert": False,
            },
        ),
        (
            FIREFOX,
            {
                "urls": ["https://shop.test/login"],
                "headers": {"User-Agent": "Mozilla/5.0 (X11)", "Cookie": "a=1; b=2", "TE": "trailers"},
                "data": "user=me&pass=p%40ss",
                "method": "POST",
                "use_gzip": True,
            },
        ),
        (
            SAFARI,
            {
                "urls": ["https://shop.test/"],
                "headers": {"Accept": "text/html", "Sec-Fetch-Mode": "navigate"},
                "method": "GET",
            },
        ),
        (
            WINDOWS,
            {
                "urls": ["https://shop.test/x?a=1&b=%7B"],
                "headers": {"accept": "*/*"},
                "data": '{"q":1}',
                "method": "POST",
                "use_gzip": True,
            },
        ),
    ],
)
def test_as_browsers_copy_them(command: str, arguments: dict[str, Any]) -> None:
    assert curl_to_arguments(command) == arguments


@pytest.mark.behaviour("H71", "H72")
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ("-u me:secret", {"headers": {"Authorization": "Basic bWU6c2VjcmV0"}}),
        ("-k -L --max-redirs 2", {"validate_cert": False, "allow_redirects": True, "max_redirects": 2}),
        ("-skL -X PUT", {"validate_cert": False, "allow_redirects": True, "method": "PUT"}),
        ("-sSXPUT", {"method": "PUT"}),
        ("-I", {"method": "HEAD"}),
        ("-A UA -e http://r/;auto", {"headers": {"User-Agent": "UA", "Referer": "http://r/"}}),
        ("-A UA -H 'user-agent: mine'", {"headers": {"user-agent": "mine"}}),
        ("-b a=1 -b b=2", {"headers": {"Cookie": "a=1; b=2"}}),
        ("-b a=1 -H 'Cookie: b=2'", {"headers": {"Cookie": "b=2"}}),
        ("-r 0-99", {"headers": {"Range": "bytes=0-99"}}),
        ("-m 2.5 --connect-timeout 3", {"timeout": 2.5, "connect_timeout": 3.0}),
        ("-x 10.0.0.1:80 -U u:p@ss", {"proxy": "u:p%40ss@10.0.0.1:80"}),
        ("--proxy socks5://10.0.0.1:80", {"proxy": "socks5://10.0.0.1:80"}),
        ("-d a=1 --data b=2 --data-binary $'c\\n'", {"data": "a=1&b=2&c\n", "method": "POST"}),
        (
            "-X PUT -d a=1",
            {"data": "a=1", "method": "PUT", "headers": {"Content-Type": "application/x-www-form-urlencoded"}},
        ),
        ("-X PATCH -d {} -H 'content-type: x'", {"data": "{}", "method": "PATCH", "headers": {"content-type": "x"}}),
        (
            "-X PUT --json {}",
            {
                "data": "{}",
                "method": "PUT",
                "headers": {"Content-Type": "application/json", "Accept": "application/json"},
            },
        ),
        ("--data-raw @not-a-file", {"data": "@not-a-file", "method": "POST"}),
        (
            "--data-urlencode 'q=a b&~中*' --data-urlencode '=x=1' --data-urlencode 'plain text'",
            {"data": "q=a+b%26~%E4%B8%AD%2A&x%3D1&plain+text", "method": "POST"},
        ),
        (
            "--json '{\"a\":' --json 1}",
            {
                "data": '{"a":1}',
                "method": "POST",
                "headers": {"Content-Type": "application/json", "Accept": "application/json"},
            },
        ),
        (
            "--json {} -H 'accept: x'",
            {"data": "{}", "method": "POST", "headers": {"accept": "x", "Content-Type": "application/json"}},
        ),
        (
            "-F 'a=\"q;x\";type=text/plain' -F b=2 --form-string c=@x",
            {
                "files": [("a", (None, "q;x", "text/plain")), ("b", (None, "2")), ("c", (None, "@x"))],
                "method": "POST",
            },
        ),
    ],
)
def test_options(options: str, expected: dict[str, Any]) -> None:
    """The bodies are those that curl 7.88 sent to a server that echoed them."""
    assert curl_to_arguments(f"curl {options} http://h/") == {"urls": ["http://h/"], **expected}


@pytest.mark.behaviour("H70")
def test_get_puts_the_data_into_the_query() -> None:
    assert curl_to_arguments("curl -G 'http://h/?x=1#f' -d a=1 --url http://h/y -d b=2") == {
        "urls": ["http://h/?x=1&a=1&b=2#f", "http://h/y?a=1&b=2"]
    }


@pytest.mark.behaviour("H71")
@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("curl http://h/ --frobnicate", "Unknow curl option: --frobnicate"),
        ("curl http://h/ -o file", "Unknow curl option: -o"),
        ("curl -s", "curl: no URL specified!"),
        ("curl http://h/ -H", "curl: -H needs a value"),
        ("curl http://h/ -b cookies.txt", "names a file"),
        ("curl http://h/ -d @body.json", "names a file"),
        ("curl http://h/ -F f=@photo.jpg", "names a file"),
        ("curl http://h/ --data-urlencode q@file", "names a file"),
    ],
)
def test_what_is_not_understood_is_refused(command: str, text: str) -> None:
    with pytest.raises(TypeError) as raised:
        BaseHandler().crawl(command)
    assert text in str(raised.value)


@pytest.mark.behaviour("H70")
def test_crawl_enters_each_url_of_a_command() -> None:
    tasks = BaseHandler().crawl("curl http://h/1 http://h/2 -F a=1 -H 'X: y'", headers={"X": "call"}, age=3)
    assert [task["url"] for task in tasks] == ["http://h/1", "http://h/2"]
    assert tasks[0]["schedule"] == {"age": 3}
    assert tasks[0]["fetch"]["method"] == "POST"
    assert tasks[0]["fetch"]["headers"]["X"] == "call"
    assert b'name="a"\r\n\r\n1\r\n' in tasks[0]["fetch"]["data"]
    assert BaseHandler().crawl("curlew") == BaseHandler().crawl("curlew")
