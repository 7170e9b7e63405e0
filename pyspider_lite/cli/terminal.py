"""Where commands print: names and texts of messages, tasks and scripts are others', and must not steer the terminal. Used by all commands
that print but `result`, which writes data."""

import click

from pyspider_lite.log import printable


def say(text: str, *, err: bool = False, lines: bool = False) -> None:
    """Print ``text`` as one line, or with ``lines`` as the lines that it is; control characters are shown escaped."""
    click.echo(printable(text, lines=lines), err=err)
