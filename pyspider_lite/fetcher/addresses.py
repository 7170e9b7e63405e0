"""Which addresses are never fetched: link-local ones and those where clouds hand out a machine's credentials.

Pure. Asked by `transfer` for every address before it connects, and by `http` for literal addresses that a proxy would connect to.
"""

import ipaddress
import socket

_REFUSED = tuple(
    ipaddress.ip_network(network)
    for network in ("169.254.0.0/16", "fe80::/10", "100.100.100.200/32", "fd00:ec2::254/128", "fd20:ce::254/128")
)
_NAT64 = ipaddress.ip_network("64:ff9b::/96")


def is_refused(address: str) -> bool:
    """Is this textual address one that a crawler has no business with? (Link-local, cloud metadata services.)"""
    try:
        ip = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    if isinstance(ip, ipaddress.IPv6Address):
        if ip.ipv4_mapped is not None:
            ip = ip.ipv4_mapped
        elif ip in _NAT64:
            ip = ipaddress.IPv4Address(int(ip) & 0xFFFFFFFF)
    return any(ip.version == network.version and ip in network for network in _REFUSED)


def literal(host: str) -> str | None:
    """The address that ``host`` spells without a look-up, also as 2852039166 or 0xa9.254.43518; None for a name."""
    host = host.strip("[]")
    if ":" in host:
        return host
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except OSError:
        return None


def refusal(address: str) -> str:
    """Why it is not fetched."""
    return f"{address} is a link-local or cloud metadata address, which is not fetched unless allow-link-local is set"
