"""How the programs of the bench are run that are no commands of ``pyspider_lite``: exit codes and sentences are the same."""

import sys
import traceback

import click

from pyspider_lite import exit_codes


def run(command: click.Command, name: str) -> int:
    """Run it with the arguments of this process, as the script ``name``; its exit code. Wrong usage is one sentence on stderr, a defect of ours a traceback."""
    try:
        code = command.main(sys.argv[1:], prog_name=name, standalone_mode=False)
        return code if isinstance(code, int) else exit_codes.DONE
    except click.ClickException as error:
        error.show()
        return exit_codes.BAD_CONFIG
    except click.Abort:
        return exit_codes.INTERRUPTED
    except Exception as error:
        code = exit_codes.of_error(error)
        if code == exit_codes.INTERNAL:
            traceback.print_exc()
        click.echo(exit_codes.sentence(error), err=True)
        return code
