"""Ports that nobody listens on, for servers and sites of the tests and of `bench`."""

import contextlib
import random
import socket


def free_port(host: str = "127.0.0.1") -> int:
    """A port that nobody listens on now. Ports that the system gives to outgoing connections are left alone."""
    with open("/proc/sys/net/ipv4/ip_local_port_range") as file:
        lowest = int(file.read().split()[0])
    for _ in range(1000):
        # by chance, so that test processes side by side do not ask for the same ones
        port = random.randrange(10_000, lowest)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind((host if "." in host and host.startswith("127.") else "", port))
            if port not in _given:
                _given.add(port)
                return port
    raise OSError("no free port")


_given: set[int] = set()
