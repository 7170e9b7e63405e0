"""The files for supervisord and systemd: read by these programs' own readers, and true to our exit codes and drain time."""

import configparser
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from supervisor.datatypes import RestartWhenExitUnexpected
from supervisor.options import ServerOptions
from supervisor.xmlrpc import SupervisorTransport

from pyspider_lite import cli, exit_codes
from pyspider_lite.settings import Settings

ROOT = Path(__file__).parent.parent
PROGRAMS = {"master": ["scheduler", "result_worker"], "slave": ["fetcher", "processor", "phantomjs"]}
#: ended as it was asked to, or for a reason that would be there again
NOT_AGAIN = {exit_codes.DONE, exit_codes.BAD_CONFIG}
#: seconds that a daemon may need after its drain: the last beat, connections, the child
GOODBYE = 10
DRAIN = Settings().drain_timeout


def read(name: str) -> ServerOptions:
    options = ServerOptions()
    options.realize(["-c", str(ROOT / "supervisor" / f"{name}.conf")])
    return options


@pytest.mark.parametrize("name", PROGRAMS)
def test_supervisord_reads_them(name: str) -> None:
    options = read(name)
    groups = {group.name: group for group in options.process_group_configs}
    found = [one for group in groups.values() for one in group.process_configs]
    assert sorted(one.command.split()[-1] for one in found) == sorted(PROGRAMS[name])
    assert set(groups) == ({"pyspider"} if name == "slave" else set(PROGRAMS[name]))
    for one in found:
        role = one.command.split()[-1]
        assert one.command == f"/usr/bin/env pyspider_lite -c config.json {role}"
        assert cli.commands.get_command(click.Context(cli.commands), role) is not None
        assert one.name == f"{role}_00"
        assert os.path.samefile(one.directory, ROOT)
        assert one.environment["PATH"].startswith(f"{ROOT}/supervisor/../.venv/bin:")
        assert set(one.exitcodes) == NOT_AGAIN
        assert one.autorestart is RestartWhenExitUnexpected
        assert one.stopwaitsecs >= DRAIN + GOODBYE
        assert one.stopasgroup and one.killasgroup
        assert one.stdout_logfile == f"{ROOT}/supervisor/{role}_00.log"
        assert one.stdout_logfile_maxbytes > 0 and one.stdout_logfile_backups > 0


def test_more_of_one_program_is_one_number(tmp_path: Path) -> None:
    for name in PROGRAMS:
        text = (ROOT / "supervisor" / f"{name}.conf").read_text("utf-8")
        (tmp_path / f"{name}.conf").write_text(text.replace("numprocs=1", "numprocs=3"))
        options = ServerOptions()
        options.realize(["-c", str(tmp_path / f"{name}.conf")])
        found = [one for group in options.process_group_configs for one in group.process_configs]
        assert {one.name for one in found} == {f"{role}_0{number}" for role in PROGRAMS[name] for number in range(3)}
        assert len({one.stdout_logfile for one in found}) == len(found)


def test_master_and_slave_can_run_from_one_folder() -> None:
    master, slave = read("master"), read("slave")
    assert master.pidfile != slave.pidfile and master.logfile != slave.logfile
    assert master.serverurl != slave.serverurl


def test_systemd_unit(tmp_path: Path) -> None:
    unit = configparser.RawConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(ROOT / "systemd" / "pyspider_lite@.service")
    service = unit["Service"]
    assert service["Restart"] == "always"
    assert {int(code) for code in service["RestartPreventExitStatus"].split()} == NOT_AGAIN
    assert int(service["SuccessExitStatus"]) == exit_codes.TERMINATED
    assert service["KillMode"] == "mixed"
    assert int(service["TimeoutStopSec"]) >= DRAIN + GOODBYE
    if shutil.which("systemd-analyze"):
        shutil.copy(ROOT / "systemd" / "pyspider_lite@.service", tmp_path / "pyspider_lite@fetcher.service")
        command = ["systemd-analyze", "verify", "--man=no", str(tmp_path / "pyspider_lite@fetcher.service")]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert (done.returncode, [line for line in done.stderr.splitlines() if "pyspider_lite" in line]) == (0, [])


def test_systemd_unit_starts_the_role_that_the_instance_names(tmp_path: Path) -> None:
    line = next(
        line
        for line in (ROOT / "systemd" / "pyspider_lite@.service").read_text("utf-8").splitlines()
        if line.startswith("ExecStart=")
    )
    bin_folder = tmp_path / ".venv" / "bin"
    bin_folder.mkdir(parents=True)
    (bin_folder / "pyspider_lite").write_text('#!/bin/sh\necho "$@"\n')
    (bin_folder / "pyspider_lite").chmod(0o755)
    for instance, role in (("fetcher", "fetcher"), ("result_worker", "result_worker"), ("processor:2", "processor")):
        # as systemd.service(5) tells: %% is %, $$ is $, %i the instance
        script = line.partition("'")[2].partition("'")[0].replace("%%", "%").replace("$$", "$")
        done = subprocess.run(
            ["/bin/sh", "-c", script, instance], cwd=tmp_path, capture_output=True, text=True, timeout=10
        )
        assert done.stdout.split() == ["-c", "config.json", role]


@pytest.fixture
def supervised(tmp_path: Path) -> Iterator[Path]:
    """A folder with a running supervisord whose `pyspider_lite` is .venv/bin/pyspider_lite there."""
    shutil.copytree(
        ROOT / "supervisor", tmp_path / "supervisor", ignore=shutil.ignore_patterns("*.log*", "*.sock", "*.pid")
    )
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    yield tmp_path


@pytest.mark.e2e
def test_a_bad_configuration_is_not_tried_for_ever(supervised: Path) -> None:
    """Not even once; what was in the way once is tried again."""
    program = supervised / ".venv" / "bin" / "pyspider_lite"
    # the scheduler crashes once, the result worker finds a mistake in the configuration at once
    program.write_text(
        "#!/bin/sh\n"
        f'case "$3" in scheduler) [ -e {supervised}/crashed ] && exec sleep 60; touch {supervised}/crashed; exit 4;; esac\n'
        f"echo >>{supervised}/mistaken; exit 2\n"
    )
    program.chmod(0o755)
    process = subprocess.Popen(
        [sys.executable, "-m", "supervisor.supervisord", "--nodaemon", "-c", "supervisor/master.conf"],
        cwd=supervised,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        end = time.monotonic() + 25
        wanted = {"scheduler_00": "RUNNING", "result_worker_00": "EXITED"}
        found: dict[str, Any] = {}
        while found != wanted and time.monotonic() < end:
            time.sleep(0.2)
            found = states(supervised / "supervisor" / "master.sock")
        assert found == wanted
        assert (supervised / "mistaken").read_text() == "\n", "it was started once"
    finally:
        process.terminate()
        process.wait(20)


def states(sock: Path) -> dict[str, Any]:
    from xmlrpc.client import ServerProxy

    if not sock.exists():
        return {}
    transport = SupervisorTransport(None, None, f"unix://{sock}")
    try:
        answer: Any = ServerProxy("http://localhost", transport=transport).supervisor.getAllProcessInfo()
    except OSError:
        return {}
    finally:
        transport.close()
    return {one["name"]: one["statename"] for one in answer}
