"""What `check-config` finds on this machine: addresses and ports, files, classes, versions. Nothing is made or changed."""

import configparser
import importlib
import importlib.metadata
import ipaddress
import os
import platform
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from pyspider_lite import __version__, assembly, settings
from pyspider_lite.errors import ConfigError
from pyspider_lite.settings import Settings

#: what matters when something behaves differently on two machines
_PACKAGES = (
    "msgspec",
    "kombu",
    "redis",
    "amqp",
    "SQLAlchemy",
    "PyMySQL",
    "psycopg",
    "lxml",
    "pyquery",
    "prometheus-client",
)


class Finding(Struct):
    """What one check found: lines to show, and a sentence for each thing that must be mended."""

    title: str
    lines: list[str] = []
    problems: list[str] = []
    #: what works, and is probably not what was meant
    hints: list[str] = []
    #: the settings are of no use: a daemon would end with the exit code for that, whatever else is mended
    unusable: bool = False


def network(chosen: Settings) -> Finding:
    """Addresses that daemons listen on, and the fetchers' proxy. An address that is another machine's is a hint only: one config.json
    serves all machines."""
    finding = Finding("network")
    wanted = [
        ("scheduler", chosen.scheduler.xmlrpc_host, chosen.scheduler.xmlrpc_port, settings.SCHEDULER_PORT),
        ("fetcher", chosen.fetcher.xmlrpc_host, chosen.fetcher.xmlrpc_port, settings.FETCHER_PORT),
    ]
    off = {"scheduler": chosen.scheduler.no_xmlrpc, "fetcher": chosen.fetcher.no_xmlrpc}
    for section, host, port, default in wanted:
        if off[section]:
            finding.lines.append(f"{section}: no XML-RPC (no-xmlrpc)")
            continue
        instead = "XML-RPC listens on 127.0.0.1 instead" if section == "scheduler" else "it works without XML-RPC"
        place = _place(host, default if port is None else port)
        finding.lines.append(f"{section}: XML-RPC at {place.shown}")
        _judge(finding, f"{section}.xmlrpc-host", place, f"a {section} that starts here says so, and {instead}")
        if not chosen.rpc_secret and not _is_loopback(host):
            finding.lines.append(
                f"{section}: {host} is reached from other machines and rpc-secret is not set: {instead}"
            )
    if chosen.health_port is not None:
        place = _place(chosen.health_host, chosen.health_port)
        finding.lines.append(f"health: {place.shown}")
        _judge(
            finding, "health-host", place, "a daemon that starts here says so, and works without /healthz and /metrics"
        )
    try:
        assembly.check_proxy(chosen)
    except ConfigError as error:
        finding.problems.append(str(error))
        finding.unusable = True
    return finding


class _Place(NamedTuple):
    """An address, and what is to be said of it on this machine."""

    shown: str
    #: it is no address at all
    problem: str = ""
    #: it is not one of this machine
    hint: str = ""


def _judge(finding: Finding, option: str, place: _Place, outcome: str) -> None:
    if place.problem:
        finding.problems.append(f"{option}: {place.problem}")
    if place.hint:
        finding.hints.append(f"{option}: {place.hint}: {outcome}")


def _place(host: str, port: int) -> _Place:
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        problem = f"{host} has no address: {getattr(error, 'strerror', None) or 'not a host name'}"
        return _Place(f"{host}:{port} ({problem})", problem=problem)
    for family, kind, protocol, _, address in found:
        if not _can_bind(family, kind, protocol, address[0], 0):
            hint = f"{host} is no address of this machine"
            return _Place(f"{host}:{port} ({hint})", hint=hint)
        if port and not _can_bind(family, kind, protocol, address[0], port):
            return _Place(f"{host}:{port} (in use now: a daemon that starts takes the next free one)")
    return _Place(f"{host}:{port}" if port else f"{host}, any free port")


def _can_bind(family: int, kind: int, protocol: int, host: str | int, port: int) -> bool:
    with socket.socket(family, kind, protocol) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def files(chosen: Settings) -> Finding:
    """Files and folders that the settings name."""
    finding = Finding("files")
    folder = Path(chosen.data_path)
    if folder.is_dir():
        finding.lines.append(f"data-path {folder} is there")
        if not os.access(folder, os.W_OK):
            finding.problems.append(f"data-path {folder} may not be written")
    elif folder.exists():
        finding.problems.append(f"data-path {folder} is not a folder")
    else:
        nearest = next(parent for parent in folder.absolute().parents if parent.exists())
        finding.lines.append(f"data-path {folder} will be made")
        if not os.access(nearest, os.W_OK):
            finding.problems.append(f"data-path {folder} cannot be made: {nearest} may not be written")
    if chosen.fetcher.ca_file:
        finding.lines.append(f"ca-file {chosen.fetcher.ca_file}")
        finding.problems += _unreadable("ca-file", chosen.fetcher.ca_file)
    if chosen.logging_config:
        finding.lines.append(f"logging-config {chosen.logging_config}")
        finding.problems += _unreadable("logging-config", chosen.logging_config) or _bad_logging(chosen.logging_config)
    return finding


def _unreadable(option: str, file: str) -> list[str]:
    try:
        with open(file, "rb") as stream:
            stream.read(1)
    except OSError as error:
        return [f"{option} {file}: {error.strerror}"]
    return []


def _bad_logging(file: str) -> list[str]:
    """logging.config would open its log files; so only the form is looked at."""
    parser = configparser.RawConfigParser()
    try:
        parser.read(file)
    except (configparser.Error, UnicodeDecodeError) as error:
        return [f"logging-config {file}: {' '.join(str(error).split())}"]
    lacking = [section for section in ("formatters", "handlers", "loggers") if not parser.has_section(section)]
    return [f"logging-config {file}: it has no section {', '.join(lacking)}"] if lacking else []


def classes(chosen: Settings) -> Finding:
    """Users' classes."""
    finding = Finding("classes")
    for name in settings.SECTIONS:
        for option in settings.options(name):
            value = getattr(getattr(chosen, name), option.name) if name and option.name.endswith("_cls") else ""
            if value:
                try:
                    found = assembly.load_class(value, lambda: object, option.name.replace("_", "-"))
                    ours = "ours is used" if found is object else f"found in {_file(found)}"
                    finding.lines.append(f"{option.path}: {value}, {ours}")
                except ConfigError as error:
                    finding.problems.append(str(error))
    return finding


def _file(found: type) -> str:
    return getattr(sys.modules.get(found.__module__), "__file__", None) or found.__module__


def versions() -> Finding:
    """This program, Python, and the packages that matter."""
    system = f"Python {platform.python_version()} on {platform.platform()}, {socket.gethostname()}"
    return Finding("versions", [f"pyspider_lite {__version__}", system, ", ".join(_packages())])


def _packages() -> Iterator[str]:
    yield str(getattr(importlib.import_module("pycurl"), "version", "pycurl"))  # names libcurl and its TLS library too
    for name in _PACKAGES:
        try:
            yield f"{name} {importlib.metadata.version(name)}"
        except importlib.metadata.PackageNotFoundError:
            yield f"no {name}"
