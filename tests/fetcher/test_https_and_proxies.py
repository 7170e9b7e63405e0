"""Fetches over TLS and through proxies, and addresses that are refused."""

import socket
import threading

import pytest

from pyspider_lite.bench.servers.ports import free_port
from pyspider_lite.fetcher.authorities import system_ca_file

# --- TLS ---


def test_https(serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("localhost"))
    url = f"https://localhost:{server.port}/"
    response = get(url, engine={"ca_file": ca_file})
    assert (response.status_code, response.content) == (200, b"hello")
    assert response.timings["tls"] > 0


@pytest.mark.behaviour("F24")
def test_certificates_are_checked_and_the_error_names_the_host(serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("other.example"))
    url = f"https://localhost:{server.port}/"
    for engine in ({}, {"ca_file": ca_file}):
        response = get(url, engine=engine)
        assert (response.status_code, response.error_kind) == (599, "tls")
        assert f"(localhost:{server.port})" in response.error
    assert get(url, validate_cert=False).status_code == 200


def test_no_tls_at_all(get):
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def speak_plainly():
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        thread = threading.Thread(target=speak_plainly, daemon=True)
        thread.start()
        response = get(f"https://127.0.0.1:{listener.getsockname()[1]}/", timeout=10)
        thread.join(5)
    assert (response.status_code, response.error_kind) == (599, "tls")


def test_there_is_a_ca_file():
    with open(system_ca_file()) as file:
        assert "BEGIN CERTIFICATE" in file.read()


# --- proxies ---


@pytest.fixture
def proxy(serve, reply):
    """Forwards nothing: answers plain requests itself, and tunnels CONNECT to the port named."""

    def respond(seen, connection):
        if seen.method != "CONNECT":
            return reply(f"proxied {seen.target}".encode())
        if seen.target.startswith("forbidden."):
            return reply(b"", "403 Forbidden")
        with socket.create_connection(("127.0.0.1", int(seen.target.rpartition(":")[2]))) as upstream:
            connection.sendall(b"HTTP/1.1 200 Connection established\r\nX-Proxy: 1\r\n\r\n")
            pump = threading.Thread(target=_pump, args=(upstream, connection), daemon=True)
            pump.start()
            _pump(connection, upstream)
            pump.join(5)
        return None

    return serve(respond)


def _pump(source, sink):
    try:
        while data := source.recv(65536):
            sink.sendall(data)
        sink.shutdown(socket.SHUT_WR)
    except OSError:
        pass


def test_proxy_with_credentials(proxy, get):
    response = get("http://example.test/x", proxy=f"us%40er:pa:ss@127.0.0.1:{proxy.port}")
    assert response.content == b"proxied http://example.test/x"
    assert proxy.seen[0].headers["proxy-authorization"] == "Basic dXNAZXI6cGE6c3M="
    assert response.proxy == f"http://us@er:***@127.0.0.1:{proxy.port}"


def test_the_fetchers_proxy_and_false(proxy, serve, get):
    defaults = {"proxy": f"127.0.0.1:{proxy.port}"}
    direct = serve()
    assert get("http://example.test/", defaults=defaults).content == b"proxied http://example.test/"
    response = get(direct.url, defaults=defaults, proxy=False)
    assert (response.content, response.proxy) == (b"hello", None)


def test_https_through_a_proxy(proxy, serve, get, tls_of, ca_file):
    server = serve(tls=tls_of("site.test"))
    response = get(f"https://site.test:{server.port}/", proxy=f"127.0.0.1:{proxy.port}", engine={"ca_file": ca_file})
    assert (response.status_code, response.content) == (200, b"hello")
    assert "X-Proxy" not in response.headers


def test_what_goes_wrong_at_the_proxy(proxy, get):
    for url, where in (
        ("https://forbidden.test/", f"127.0.0.1:{proxy.port}"),
        ("http://a.test/", f"127.0.0.1:{free_port()}"),
        ("http://a.test/", "no-such-proxy.invalid:1"),
    ):
        response = get(url, proxy=where, timeout=10)
        assert (response.status_code, response.error_kind) == (599, "proxy"), (where, response.error)


def test_the_environments_proxies_are_ignored(serve, get, monkeypatch):
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    monkeypatch.setenv("no_proxy", "")
    assert get(serve().url).status_code == 200


# --- addresses that are refused: none of these tests may reach a real metadata service, so they use loopback or silent addresses ---


@pytest.mark.parametrize(
    "host", ["169.254.77.77", str(0xA9FE4D4D), "0xa9.254.19789", "[fe80::1]", "[::ffff:169.254.77.77]"]
)
def test_link_local_addresses_are_refused(get, host, serve):
    response = get(f"http://{host}/", timeout=5)
    assert (response.status_code, response.error_kind) == (599, "refused-address")
    proxy = serve()
    assert get(f"http://{host}/", timeout=5, proxy=proxy.url).error_kind == "refused-address"
    assert proxy.seen == []


def test_the_check_sees_what_a_name_resolves_to_and_can_be_turned_off(serve, get, monkeypatch):
    """Loopback stands in for the refused addresses, because no test may depend on what answers at the real ones."""
    server = serve()
    url = f"http://localhost:{server.port}/"
    monkeypatch.setattr("pyspider_lite.fetcher.addresses.is_refused", lambda address: address in ("127.0.0.1", "::1"))
    response = get(url)
    assert (response.status_code, response.error_kind) == (599, "refused-address")
    assert server.connections == 0
    assert get(url, engine={"allow_link_local": True}).status_code == 200
