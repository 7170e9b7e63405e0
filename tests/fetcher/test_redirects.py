"""Redirects: methods, limits, cookies and credentials on each hop, addresses as browsers read them."""

import pytest


@pytest.fixture
def site(serve, reply):
    """``/<status>/<target>`` redirects to ``/<target>``; everything else answers with what it got."""

    def respond(seen, connection):
        _, _, rest = seen.target.partition("/")
        status, _, target = rest.partition("/")
        if status.isdigit() and target:
            return reply(b"moved", f"{status} Moved", f"Location: /{target}", f"Set-Cookie: c{status}=1; Path=/")
        return reply(f"{seen.method} {seen.body.decode()}".encode())

    return serve(respond)


@pytest.mark.behaviour("F20", "X-F4")
@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "DELETE"])
def test_method_and_body(site, get, status, method):
    """Behaviour F20, mended: 308 is followed, HEAD stays HEAD."""
    body = "data" if method in ("POST", "PUT") else None
    response = get(f"{site.url}/{status}/end", method=method, data=body, headers={"Content-Type": "text/x"})
    last = site.seen[-1]
    kept = status not in (302, 303) or method == "HEAD"
    assert last.method == (method if kept else "GET")
    assert last.body == (body.encode() if body and kept else b"")
    assert ("content-type" in last.headers) == kept
    assert (response.status_code, response.url) == (200, f"{site.url}/end")
    assert response.orig_url == f"{site.url}/{status}/end"
    assert response.redirects == [{"status": status, "url": f"{site.url}/{status}/end", "cookies": {f"c{status}": "1"}}]


@pytest.mark.parametrize("status", [300, 304, 305, 306])
def test_what_is_not_followed(site, get, status):
    response = get(f"{site.url}/{status}/end")
    assert response.status_code == status
    assert response.redirects == []
    assert response.error == f"HTTP {status}: Moved"


@pytest.mark.behaviour("X-K7")
def test_off_switch(site, get):
    response = get(f"{site.url}/302/end", allow_redirects=False)
    assert (response.status_code, response.error, response.content) == (302, "HTTP 302: Moved", b"moved")
    assert response.headers["Location"] == "/end"
    assert response.redirects == []


@pytest.mark.behaviour("F20")
def test_limit(site, get):
    five = f"{site.url}/301/302/303/307/308/end"
    assert get(five).status_code == 200
    response = get(five, max_redirects=4)
    assert (response.status_code, response.error_kind) == (599, "redirects")
    assert response.error == "HTTP 599: Maximum (4) redirects followed"
    assert (len(response.redirects), response.url) == (4, f"{site.url}/308/end")
    assert get(f"{site.url}/302/end", max_redirects=0).error == "HTTP 599: Maximum (0) redirects followed"


def test_loop_ends(serve, get, reply):
    server = serve(reply(b"", "302 Found", "Location: /"))
    assert get(server.url).error_kind == "redirects"
    assert len(server.seen) == 6


def test_without_location_it_is_an_answer(serve, get, reply):
    assert get(serve(reply(b"x", "302 Found")).url).error == "HTTP 302: Found"


def test_location_with_raw_bytes(serve, get, reply):
    """Demand UA10."""
    for raw, target in ((b"/caf\xc3\xa9 au lait", "/caf%C3%A9%20au%20lait"), (b"/caf\xe9", "/caf%E9")):
        moved = b"HTTP/1.1 301 Moved\r\nContent-Length: 0\r\nLocation: " + raw + b"\r\n\r\n"
        server = serve(lambda seen, connection, moved=moved: moved if seen.target == "/" else reply())
        response = get(server.url)
        assert (response.status_code, server.seen[-1].target) == (200, target)


@pytest.mark.parametrize(
    "location", ["ftp://a/", "file:///etc/passwd", "javascript:1", "http://a b/", "//[x", "gopher://a:1/x"]
)
def test_only_http_and_https_are_followed(serve, get, reply, location):
    response = get(serve(reply(b"", "302 Found", f"Location: {location}")).url)
    assert (response.status_code, response.error_kind) == (599, "redirects")
    assert len(response.redirects) == 1


def test_refused_addresses_are_refused_on_every_hop(serve, get, reply):
    server = serve(reply(b"", "302 Found", "Location: http://169.254.77.77/"))
    response = get(server.url, timeout=5)
    assert (response.status_code, response.error_kind) == (599, "refused-address")
    assert response.url == "http://169.254.77.77/"


@pytest.mark.behaviour("X-K9", "F19")
def test_cookies_on_the_way(site, get):
    response = get(f"{site.url}/302/303/end", cookies={"mine": "1"}, headers={"cookie": 'a="b c"; mine=0'})
    sent = [seen.headers["cookie"] for seen in site.seen]
    assert sent == ['a="b c"; mine=1', 'a="b c"; mine=1; c302=1', 'a="b c"; mine=1; c302=1; c303=1']
    assert response.cookies == {"a": '"b c"', "mine": "1", "c302": "1", "c303": "1"}


@pytest.mark.behaviour("F19", "X-X10")
def test_cookies_and_credentials_stay_with_their_origin(serve, get, reply):
    """Behaviour X-X10, mended."""
    other = serve()
    first = serve(reply(b"", "307 Moved", f"Location: {other.url}/", "Set-Cookie: set=1"))
    get(first.url, cookies={"mine": "1"}, headers={"authorization": "secret", "X-Other": "stays"})
    assert first.seen[0].headers["cookie"] == "mine=1"
    assert first.seen[0].headers["authorization"] == "secret"
    assert "authorization" not in other.seen[0].headers
    assert other.seen[0].headers["x-other"] == "stays"
    # a cookie that a server sets belongs to its host, whatever the port (RFC 6265)
    assert other.seen[0].headers["cookie"] == "set=1"


def test_cookies_of_another_host(serve, get, reply):
    other = serve()
    first = serve(reply(b"", "302 Moved", f"Location: http://localhost:{other.port}/", "Set-Cookie: set=1"))
    response = get(first.url, cookies={"mine": "1"})
    assert "cookie" not in other.seen[0].headers
    assert response.cookies == {"mine": "1", "set": "1"}


@pytest.mark.behaviour("F21", "X-F5")
def test_the_timeout_covers_all_hops(serve, get, reply):
    """Behaviour F21, mended: measured from the start of the fetch, once."""

    def respond(seen, connection):
        server.released.wait(0.2)
        return reply(b"", "302 Found", "Location: /again")

    server = serve(respond)
    response = get(server.url, timeout=0.5, max_redirects=100)
    assert response.error_kind == "timeout"
    assert 0.4 < response.time < 2
    assert 1 <= len(response.redirects) <= 3
