"""Calls to an XML-RPC server of ours, with deadlines and one sentence for whatever goes wrong. Used by commands."""

import http.client
from typing import Any
from urllib.parse import quote, urlsplit, urlunsplit
from xml.parsers.expat import ExpatError
from xmlrpc.client import Error, Fault, ProtocolError, ServerProxy, Transport

from pyspider_lite.errors import ConfigError, RefusedToStart
from pyspider_lite.log import mask_url


def call(url: str, secret: str, method: str, *arguments: Any, timeout: float = 15.0) -> Any:
    """What the server at ``url`` answers; a secret in the URL comes before ``secret``. ``timeout`` seconds are for each step of the
    way. Raises ConfigError if it refuses, RefusedToStart if it does not answer."""
    shown = mask_url(url, alone=True)
    try:
        with ServerProxy(_with_secret(url, secret), _Transport(timeout), allow_none=True) as server:
            return getattr(server, method)(*arguments)
    except Fault as error:
        raise ConfigError(f"{shown} answers: {error.faultString}") from error
    except ProtocolError as error:
        raise ConfigError(f"{shown} answers: {error.errcode} {error.errmsg}") from error
    except (OSError, http.client.HTTPException, Error, ExpatError) as error:
        reason = getattr(error, "strerror", None) or str(error) or type(error).__name__
        raise RefusedToStart(f"{shown} does not answer: {reason}") from error


def _with_secret(url: str, secret: str) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme == "http" and parts.hostname and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise ConfigError(
            f"{mask_url(url, alone=True)} is not the URL of an XML-RPC server: expected http://HOST:PORT/"
        )
    if secret and "@" not in parts.netloc:
        parts = parts._replace(netloc=f":{quote(secret, safe='')}@{parts.netloc}")
    return urlunsplit(parts._replace(path=parts.path or "/"))


class _Transport(Transport):
    def __init__(self, timeout: float) -> None:
        super().__init__(use_builtin_types=True)
        self._timeout = timeout

    def make_connection(self, host: Any) -> http.client.HTTPConnection:
        connection = super().make_connection(host)
        connection.timeout = self._timeout
        return connection
