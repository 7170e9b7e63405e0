"""The command line: options in, one call into bootstrap, a named exit code out. Each command's module is imported when it is used.

`main` is the console script; what the codes mean is in `exit_codes`.
"""

import difflib
import importlib
import logging
import os
import sys
import traceback
from collections.abc import Sequence

import click

from pyspider_lite import __version__, exit_codes
from pyspider_lite.cli import options
from pyspider_lite.cli.terminal import say

#: command -> module in this folder that has it under the same name
COMMANDS = {
    "all": "roles",
    "one": "one",
    "scheduler": "roles",
    "fetcher": "roles",
    "processor": "roles",
    "result_worker": "roles",
    "phantomjs": "browser",
    "puppeteer": "browser",
    "project": "project",
    "task": "task",
    "explain": "explain",
    "dead_letter": "dead_letter",
    "result": "result",
    "send_message": "send_message",
    "cluster": "cluster",
    "check_config": "check_config",
    "doctor": "doctor",
    "bench": "bench",
    "version": "",
}
_HIDDEN = {"child": "roles"}


class _Commands(click.Group):
    """Commands by name, with ``-`` for ``_`` as well (behaviour C3)."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        name = cmd_name.replace("-", "_")
        if name == "version":
            return version
        module = (COMMANDS | _HIDDEN).get(name)
        if module is None:
            near = difflib.get_close_matches(name, COMMANDS, 1)
            raise click.UsageError(
                f"there is no command {cmd_name}" + (f"; did you mean {near[0]}?" if near else ""), ctx
            )
        command: click.Command = getattr(importlib.import_module(f"pyspider_lite.cli.{module}"), f"{name}_command")
        return command


@click.group(
    "pyspider_lite",
    cls=_Commands,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
)
@click.version_option(__version__, prog_name="pyspider_lite")
@options.of_section("")
@click.pass_context
def commands(ctx: click.Context) -> int:
    """A crawler daemon suite. Without a command everything is started on this machine, as by `all`."""
    if ctx.invoked_subcommand is not None:
        return exit_codes.DONE  # the command's own code counts
    from pyspider_lite.cli.roles import all_command

    code: int = ctx.invoke(all_command)
    return code


@click.command()
def version() -> None:
    """Print the version."""
    say(f"pyspider_lite {__version__}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; its exit code. A user's mistake is one sentence on stderr, a defect of ours a traceback."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        with commands.make_context("pyspider_lite", given) as context:
            code = commands.invoke(context)
        sys.stdout.flush()
        return code if isinstance(code, int) else exit_codes.DONE
    except click.ClickException as error:
        error.show()
        return exit_codes.BAD_CONFIG
    except click.exceptions.Exit as error:
        return error.exit_code
    except click.Abort:
        return exit_codes.INTERRUPTED
    except BrokenPipeError:
        # whoever read our output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        return exit_codes.DONE
    except (Exception, KeyboardInterrupt) as error:
        code = exit_codes.of_error(error)
        if code == exit_codes.INTERNAL or logging.getLogger().isEnabledFor(logging.DEBUG):
            traceback.print_exc()
        if code != exit_codes.INTERRUPTED:
            say(f"pyspider_lite: {exit_codes.sentence(error)}", err=True, lines=True)
        return code
