"""robots.txt: asked once an origin, on every hop, and allowing when it cannot be had (behaviour F30)."""

import asyncio
from contextlib import closing

import pytest

from pyspider_lite.fetcher import robots
from pyspider_lite.fetcher.fetch import Fetch
from pyspider_lite.fetcher.http import HttpEngine
from pyspider_lite.fetcher.request import Defaults
from pyspider_lite.fetcher.transfer import EngineOptions
from pyspider_lite.models.page import Dispatch

RULES = (
    b"User-agent: *\nDisallow: /private\nAllow: /private/open\nDisallow: /*.pdf$\n\nUser-agent: nice\nDisallow: /nice\n"
)


@pytest.fixture
def site(serve, reply):
    def respond(seen, connection):
        if seen.target == "/robots.txt":
            return reply(RULES, "200 OK", "Content-Type: text/plain")
        if seen.target == "/to-private":
            return reply(b"", "302 Found", "Location: /private")
        return reply(b"page")

    return serve(respond)


def asked(server):
    return [seen.target for seen in server.seen].count("/robots.txt")


@pytest.mark.behaviour("F30")
@pytest.mark.parametrize(
    ("path", "agent", "allowed"),
    [
        ("/", "bot/1", True),
        ("/private", "bot/1", False),
        ("/private/open", "bot/1", True),
        ("/a/b.pdf", "bot/1", False),
        ("/a/b.pdf?x", "bot/1", True),
        ("/private", "nice/2.0 (+http://nice.example)", True),
        ("/nice", "nice/2.0 (+http://nice.example)", False),
    ],
)
def test_rules(site, get, path, agent, allowed):
    response = get(site.url + path, robots_txt=True, user_agent=agent)
    if allowed:
        assert (response.status_code, response.error) == (200, None)
    else:
        assert (response.status_code, response.error_kind) == (403, "robots")
        assert response.error == "HTTP 403: Disallowed by robots.txt"
        assert [seen.target for seen in site.seen] == ["/robots.txt"]


def test_only_when_asked_for(site, get):
    assert get(site.url + "/private").status_code == 200
    assert asked(site) == 0


@pytest.mark.behaviour("F30")
def test_redirect_targets_are_checked(site, get):
    response = get(site.url + "/to-private", robots_txt=True)
    assert (response.status_code, response.error_kind, len(response.redirects)) == (403, "robots", 1)


@pytest.mark.behaviour("F30", "X-F1")
@pytest.mark.parametrize("status", ["404 Not Found", "403 Forbidden", "500 Internal Server Error"])
def test_without_robots_txt_all_is_allowed(serve, get, reply, status):
    server = serve(lambda seen, connection: reply(b"", status) if seen.target == "/robots.txt" else reply(b"page"))
    assert get(server.url + "/private", robots_txt=True).content == b"page"
    assert asked(server) == 1


def test_broken_robots_txt_allows(serve, get, reply):
    def respond(seen, connection):
        if seen.target == "/robots.txt":
            connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nUser-agent: *\nDisallow: /")
            return None
        return reply(b"page")

    assert get(serve(respond).url + "/private", robots_txt=True).content == b"page"


@pytest.mark.behaviour("F30")
def test_one_request_for_many_tasks(site):
    async def run():
        with closing(Fetch(HttpEngine(EngineOptions()), Defaults())) as fetch:

            def one(number):
                url = f"{site.url}/{number}"
                return fetch(Dispatch(taskid="t", project="p", url=url, fetch={"robots_txt": True}))

            first = await asyncio.gather(*map(one, range(20)))
            return first + await asyncio.gather(*map(one, range(20)))

    assert {response.status_code for response in asyncio.run(run())} == {200}
    assert asked(site) == 1


def test_the_fetchs_own_timeout_holds_while_robots_txt_is_slow(serve, get):
    def respond(seen, connection):
        server.released.wait(10)

    server = serve(respond)
    response = get(server.url, robots_txt=True, timeout=0.3)
    assert response.error_kind == "timeout"
    assert response.time < 3


@pytest.mark.behaviour("X-F2")
def test_the_rules_of_many_sites_are_bounded(serve, reply, monkeypatch):
    monkeypatch.setattr(robots, "_MAX_ORIGINS", 2)
    sites = [serve(reply(b"")) for _ in range(3)]

    async def run():
        with closing(Fetch(HttpEngine(EngineOptions()), Defaults())) as fetch:
            for site in (sites[0], sites[1], sites[0], sites[2], sites[0], sites[1]):
                task = Dispatch(taskid="t", project="p", url=f"{site.url}/x", fetch={"robots_txt": True})
                assert (await fetch(task)).status_code == 200
            assert len(fetch._robots._known) == 2

    asyncio.run(run())
    # the one that nobody asked about for longest went
    assert [asked(site) for site in sites] == [1, 2, 1]
