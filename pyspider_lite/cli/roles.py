"""`all` and the commands of the single daemons."""

import os
import time

import click

from pyspider_lite import bootstrap, exit_codes, managed_child, process_manager
from pyspider_lite.cli import options
from pyspider_lite.errors import ConfigError
from pyspider_lite.models.names import Role

#: seconds before a daemon that cannot start ends, under supervisor: that starts it again at once, because only with startsecs=0
#: does it heed exit code 2
_PAUSE = 3.0


@click.command("all")
@options.of_section("all")
@click.pass_context
def all_command(ctx: click.Context) -> int:
    """Start everything on this machine and keep it running."""
    settings = options.settings_of(ctx)
    bootstrap.check_queue(settings, served=True)
    bootstrap.make_data_path(settings)
    return process_manager.ProcessManager(settings).run()


@click.command("child", hidden=True)
@click.argument("role")
def child_command(role: str) -> int:
    """One daemon of `all`: which one its parent says on standard input; ``role`` is for the list of processes."""
    start, parent = managed_child.begin()
    bootstrap.set_up_logging(start.settings)
    code = bootstrap.run_role(start.role, start.settings, index=start.index, on_ready=parent.say_ready)
    if code == exit_codes.DONE:
        parent.say_told()
    return bootstrap.leave_threads(code)


def _role_command(role: Role, text: str) -> click.Command:
    @click.command(str(role), help=text)
    @options.of_section(str(role))
    @click.pass_context
    def command(ctx: click.Context) -> int:
        settings = options.settings_of(ctx)
        try:
            bootstrap.check_queue(settings)
            return bootstrap.leave_threads(bootstrap.run_role(role, settings))
        except ConfigError:
            raise
        except Exception:
            if "SUPERVISOR_ENABLED" in os.environ:
                time.sleep(_PAUSE)
            raise

    return command


scheduler_command = _role_command(Role.SCHEDULER, "Start a scheduler: it decides what is crawled when.")
fetcher_command = _role_command(Role.FETCHER, "Start a fetcher: it gets pages.")
processor_command = _role_command(Role.PROCESSOR, "Start a processor: it runs the scripts' callbacks.")
result_worker_command = _role_command(Role.RESULT_WORKER, "Start a result worker: it stores results.")
