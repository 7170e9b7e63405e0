"""How the URL of a broker is spelled, and what kombu is told of it. Used by the queues on kombu; imports neither kombu nor a driver.

Accepted are pyspider's spellings (behaviour Q3), kombu's, and ``kombu+`` before any of them:

* ``redis://[[USER]:PASSWORD@]HOST[:6379][/DATABASE]``, ``rediss://`` with TLS, ``redis+socket:///PATH[?virtual_host=DATABASE]``
* ``sentinel://[:PASSWORD@]HOST[:26379][;sentinel://HOST2...][/DATABASE]?master_name=NAME``
* ``amqp://[USER:PASSWORD@]HOST[:5672][/VHOST]`` (the virtual host / is ``//`` or ``/%2F``), ``amqps://``, several with ``;`` between
* anything else that kombu has a transport for, passed on as it is

TLS checks the server's certificate unless ``?ssl_cert_reqs=none`` says otherwise (kombu's own default would be not to).
"""

import logging
import ssl
from typing import Any, NamedTuple
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pyspider_lite.errors import ConfigError
from pyspider_lite.log import mask_url

logger = logging.getLogger(__name__)

#: seconds to connect, and for any answer of a broker
PATIENCE = 5.0

PERCENT_HINT = (
    "special characters of a password are written as % and two digits: % %25, @ %40, / %2F, : %3A, # %23, ? %3F"
)

REDIS = ("redis", "rediss", "redis+socket", "sentinel")
AMQP = ("amqp", "amqps", "pyamqp")
PREFIX = "kombu+"

_SSL = {
    "ssl_cert_reqs": "none, optional or required",
    "ssl_ca_certs": "a file",
    "ssl_certfile": "a file",
    "ssl_keyfile": "a file",
}
_CERT_REQS = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_warned: set[str] = set()


class Broker(NamedTuple):
    """One broker as kombu is told of it."""

    #: its scheme without kombu+
    scheme: str
    #: keywords of kombu.Connection for each server that may be tried, the first one first
    servers: list[dict[str, Any]]
    #: the URL without passwords, for messages
    shown: str


def known(scheme: str) -> bool:
    """Whether ``scheme`` is one of a broker."""
    return scheme.startswith(PREFIX) or scheme in REDIS or scheme in AMQP


def parse(url: str) -> Broker:
    """Raises ConfigError with a sentence that shows no password."""
    url = url.strip().removeprefix(PREFIX)
    scheme, _, rest = url.partition("://")
    shown = mask_url(url, alone=True)
    try:
        if scheme in REDIS:
            return Broker(scheme, [_redis(scheme, rest)], shown)
        if scheme in AMQP:
            return Broker(scheme, [_amqp(part.strip()) for part in url.split(";") if part.strip()], shown)
    except ValueError as error:
        # what urllib says may quote a part of the password
        reason = str(error) if isinstance(error, _Unusable) else f"it cannot be read; {PERCENT_HINT}"
        raise ConfigError(f"message queue {shown}: {reason}") from None
    return Broker(scheme, [{"hostname": url, "connect_timeout": PATIENCE}], shown)


class _Unusable(ValueError):
    """Its text shows no password."""


def _redis(scheme: str, rest: str) -> dict[str, Any]:
    if "," in rest.partition("/")[0].rpartition("@")[2]:
        raise _Unusable("a list of Redis nodes (a cluster) is not supported; name one server, redis://HOST:6379/0")
    first, *others = [part.strip().removeprefix("sentinel://") for part in rest.split(";")]
    parts, query = _split(others[-1] if others else first)
    servers = [first, *others] if scheme == "sentinel" else [first]
    known = {*_SSL, "username", "password", "virtual_host", "db"}
    _refuse_unknown(query, known | {"master_name"} if scheme == "sentinel" else known)
    socket = scheme == "redis+socket"
    database = query.get("virtual_host") or query.get("db") or ("" if socket else unquote(parts.path.strip("/")))
    login, _ = _split(first)
    keywords: dict[str, Any] = {
        "hostname": login.hostname or "127.0.0.1",
        "port": login.port or (26379 if scheme == "sentinel" else 6379),
        "userid": query.get("username") or unquote(login.username or "") or None,
        "password": query.get("password") or unquote(login.password or "") or None,
        "virtual_host": _database(database),
        "ssl": _redis_tls(query) if scheme == "rediss" else False,
        "connect_timeout": PATIENCE,
    }
    if socket:
        if not parts.path.startswith("/") or parts.netloc:
            raise _Unusable("a unix socket is written as redis+socket:///PATH?virtual_host=0")
        keywords["socket"] = unquote(parts.path)
    if scheme == "sentinel":
        if "master_name" not in query:
            raise _Unusable("the name of the master is missing: add ?master_name=NAME")
        keywords["master_name"] = query["master_name"]
        keywords["alternates"] = [f"sentinel://{_host(_split(server)[0], 26379)}" for server in servers]
    return keywords


def _database(text: str) -> str:
    """pyspider's tutorials write redis://HOST:6379/db, which meant database 0 (behaviour Q3)."""
    if text.isdecimal():
        return text
    if text and text not in _warned:
        _warned.add(text)
        logger.warning("message queue: %r is not the number of a Redis database; database 0 is used", text)
    return "0"


def _redis_tls(query: dict[str, str]) -> dict[str, Any]:
    return {"ssl_cert_reqs": "required", **{key: value for key, value in query.items() if key in _SSL}}


def _amqp(url: str) -> dict[str, Any]:
    scheme, _, rest = url.partition("://")
    if scheme not in AMQP:
        raise _Unusable("each server of a list begins with amqp:// or amqps://")
    parts, query = _split(rest)
    _refuse_unknown(query, {*_SSL, "login_method"})
    if "," in parts.netloc.rpartition("@")[2]:
        raise _Unusable("several servers are written as amqp://HOST1;amqp://HOST2")
    port = parts.port or (5671 if scheme == "amqps" else 5672)
    if port == 15672:
        raise _Unusable("15672 is the port of RabbitMQ's web page; its queues are at 5672")
    keywords: dict[str, Any] = {
        "hostname": _host(parts, None) or "127.0.0.1",
        "port": port,
        "userid": unquote(parts.username or "") or "guest",
        "password": unquote(parts.password or "") or "guest",
        "virtual_host": unquote(parts.path[1:]) or "/",
        "login_method": query.get("login_method") or "PLAIN",
        "connect_timeout": PATIENCE,
    }
    if scheme == "amqps":
        keywords["transport"] = "amqps"
        keywords["ssl"] = _amqp_tls(query)
    else:
        keywords["transport"] = "pyamqp"  # never librabbitmq, which has no confirms
    return keywords


def _amqp_tls(query: dict[str, str]) -> dict[str, Any]:
    options: dict[str, Any] = {"cert_reqs": ssl.CERT_REQUIRED}
    for key in _SSL:
        if key in query:
            options[key.removeprefix("ssl_")] = query[key]
    if isinstance(options["cert_reqs"], str):
        options["cert_reqs"] = _CERT_REQS[options["cert_reqs"]]
    if options["cert_reqs"] != ssl.CERT_NONE:
        options["server_hostname"] = None  # kombu puts the host's name there
    return options


def _split(rest: str) -> tuple[SplitResult, dict[str, str]]:
    """The parts of what follows ://; raises ValueError."""
    parts = urlsplit(f"http://{rest}")
    parts.port  # noqa: B018 - raises if it is none
    if parts.fragment or "@" in parts.path or "@" in parts.query:
        raise _Unusable(f"a character in it cuts it short; {PERCENT_HINT}")
    return parts, dict(parse_qsl(parts.query, keep_blank_values=True))


def _host(parts: SplitResult, port: int | None) -> str:
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    return f"{host}:{parts.port or port}" if port else host


def _refuse_unknown(query: dict[str, str], known: set[str]) -> None:
    for key in query:
        if key not in known:
            raise _Unusable(f"the parameter {key!r} is not known; there are {', '.join(sorted(known))}")
    requirement = query.get("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    if requirement not in _CERT_REQS:
        raise _Unusable(f"ssl_cert_reqs is {_SSL['ssl_cert_reqs']}")
    if "ssl_cert_reqs" in query:
        query["ssl_cert_reqs"] = requirement
