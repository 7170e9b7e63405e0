"""How brokers are spelled."""

import logging
import ssl
from typing import Any

import pytest

from pyspider_lite.errors import ConfigError
from pyspider_lite.message_queue import broker_url
from pyspider_lite.message_queue.broker_url import parse


def one(url: str) -> dict[str, Any]:
    (server,) = parse(url).servers
    return server


@pytest.mark.behaviour("Q3", "X-Q3")
@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://h", ("h", 6379, None, None, "0")),
        ("redis://", ("127.0.0.1", 6379, None, None, "0")),
        ("redis://h:6380/3", ("h", 6380, None, None, "3")),
        ("redis://h:6379/db", ("h", 6379, None, None, "0")),
        ("redis://h:6379/", ("h", 6379, None, None, "0")),
        ("redis://:pw@h/1", ("h", 6379, None, "pw", "1")),
        ("redis://user:p%40ss%2Fw@h/1", ("h", 6379, "user", "p@ss/w", "1")),
        ("redis://:p@ss@h/1", ("h", 6379, None, "p@ss", "1")),
        ("redis://h?db=4&password=x", ("h", 6379, None, "x", "4")),
        ("redis://[::1]:7/0", ("::1", 7, None, None, "0")),
        ("kombu+redis://h/2", ("h", 6379, None, None, "2")),
        ("redis+socket:///run/redis.sock?virtual_host=2&password=p", ("127.0.0.1", 6379, None, "p", "2")),
        ("amqp://guest:guest@h:5672/%2F", ("h", 5672, "guest", "guest", "/")),
        ("amqp://h//", ("h", 5672, "guest", "guest", "/")),
        ("amqp://h/", ("h", 5672, "guest", "guest", "/")),
        ("amqp://h", ("h", 5672, "guest", "guest", "/")),
        ("amqp://", ("127.0.0.1", 5672, "guest", "guest", "/")),
        ("pyamqp://a:b%3F@h/vhost", ("h", 5672, "a", "b?", "vhost")),
        ("amqp://a:b@h/%2Fvhost", ("h", 5672, "a", "b", "/vhost")),
        ("kombu+amqps://[::1]/x", ("[::1]", 5671, "guest", "guest", "x")),
    ],
)
def test_spellings(url: str, expected: tuple[object, ...]) -> None:
    server = one(url)
    assert tuple(server[key] for key in ("hostname", "port", "userid", "password", "virtual_host")) == expected


def test_a_database_that_is_no_number_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    broker_url._warned.clear()
    with caplog.at_level(logging.WARNING):
        for _ in range(3):
            parse("redis://:s3cret@192.0.2.1:6379/db")
    assert [record.getMessage() for record in caplog.records] == [
        "message queue: 'db' is not the number of a Redis database; database 0 is used"
    ]


def test_unix_socket() -> None:
    assert one("redis+socket:///run/my%20redis.sock")["socket"] == "/run/my redis.sock"


def test_sentinels() -> None:
    server = one("sentinel://:pw@h1;sentinel://h2:5/3?master_name=m")
    assert server["alternates"] == ["sentinel://h1:26379", "sentinel://h2:5"]
    assert (server["master_name"], server["password"], server["virtual_host"]) == ("m", "pw", "3")


def test_several_servers_of_amqp() -> None:
    servers = parse("amqp://h1//;amqps://u:p@h2/v").servers
    assert [server["hostname"] for server in servers] == ["h1", "h2"]
    assert [server["transport"] for server in servers] == ["pyamqp", "amqps"]


def test_certificates_are_checked_unless_one_says_not() -> None:
    assert one("rediss://h")["ssl"] == {"ssl_cert_reqs": "required"}
    assert one("rediss://h?ssl_cert_reqs=none&ssl_ca_certs=/ca")["ssl"] == {
        "ssl_cert_reqs": "none",
        "ssl_ca_certs": "/ca",
    }
    assert one("redis://h")["ssl"] is False
    assert one("amqps://h")["ssl"] == {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": None}
    assert one("amqps://h?ssl_cert_reqs=CERT_NONE&ssl_ca_certs=/ca")["ssl"] == {
        "cert_reqs": ssl.CERT_NONE,
        "ca_certs": "/ca",
    }
    assert "ssl" not in one("amqp://h")


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("redis://h1:6379,h2:6379", "a list of Redis nodes"),
        ("redis://:pw@h1:6379,h2:6379/0", "a list of Redis nodes"),
        ("redis://h1,h2", "a list of Redis nodes"),
        ("amqp://h1,h2", "several servers are written"),
        ("amqp://h1;redis://h2", "begins with amqp://"),
        ("amqp://h:15672//", "RabbitMQ's web page"),
        ("sentinel://h", "master_name"),
        ("redis+socket://run/redis.sock", "redis\\+socket:///PATH"),
        ("redis://h?dbx=1", "'dbx' is not known; there are db, password"),
        ("rediss://h?ssl_cert_reqs=maybe", "none, optional or required"),
        ("redis://h:port", "%40"),
        ("redis://h:99999", "%40"),
        ("redis://[h", "%40"),
        ("amqp://u:s3c/ret@h", "%2F"),
        ("amqp://u:12#s3cret@h", "%23"),
        ("amqp://u:12?s3cret@h", "%3F"),
        ("amqp://u:s3c[ret@h", "%40"),
    ],
)
def test_what_is_no_broker_is_refused_in_a_sentence(url: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as caught:
        parse(url)
    assert "\n" not in str(caught.value)
    assert "s3c" not in str(caught.value)
    assert "ret@" not in str(caught.value)
