"""Which address an XML-RPC server listens on, and which one the others are told. Used by `server` and `bootstrap`."""

import fcntl
import ipaddress
import socket
import struct
from typing import NamedTuple

from pyspider_lite.errors import ConfigError

_SIOCGIFADDR = 0x8915


class Address(NamedTuple):
    """An address of this machine, as asked for and as resolved."""

    family: int
    ip: str

    @property
    def is_loopback(self) -> bool:
        """Only this machine can reach it."""
        return is_loopback(self.ip)

    @property
    def shown(self) -> str:
        """A host under which others reach it; of "all addresses" the machine's first."""
        if not ipaddress.ip_address(self.ip.partition("%")[0]).is_unspecified:
            return self.ip
        return _first_address() or socket.gethostname()


def resolve(host: str) -> Address:
    """The address that xmlrpc-host names; "" stands for all. Raises ConfigError for a name that is none."""
    if not host.strip():
        return Address(socket.AF_INET, "0.0.0.0")
    try:
        family, _, _, _, address = socket.getaddrinfo(host.strip("[]"), None, type=socket.SOCK_STREAM)[0]
    except (OSError, UnicodeError) as error:
        reason = getattr(error, "strerror", None) or "not a host name"
        raise ConfigError(f"xmlrpc-host {host} is not an address of this machine: {reason}") from error
    return Address(family, str(address[0]))


def is_loopback(host: str) -> bool:
    """``host`` is localhost, or an address that only this machine can reach."""
    if host.lower() == "localhost":
        return True
    try:
        address = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def url(host: str, port: int) -> str:
    """Of the server there, without the secret."""
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


def _first_address() -> str:
    """The IPv4 address of the first interface that is not the loopback; "" if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            try:
                answer = fcntl.ioctl(probe, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
            except OSError:  # no address, or a system other than Linux
                continue
            found = socket.inet_ntoa(answer[20:24])
            if not is_loopback(found):
                return found
    return ""
