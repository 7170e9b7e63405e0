"""`send_message`: have `on_message` of a project called, through the scheduler's XML-RPC (behaviour C98)."""

import hashlib

import click

from pyspider_lite import bootstrap
from pyspider_lite.cli import options
from pyspider_lite.cli.terminal import say

_URL = "data:,on_message"


@click.command("send_message")
@click.option("--scheduler-rpc", metavar="URL", help="The scheduler's XML-RPC; not set: that of the one that leads.")
@click.argument("project")
@click.argument("message")
@click.pass_context
def send_message_command(ctx: click.Context, scheduler_rpc: str | None, project: str, message: str) -> None:
    """Call on_message of PROJECT with MESSAGE, a text; its sender is called __command__."""
    settings = options.settings_of(ctx, quiet=True)
    task = {
        "taskid": hashlib.md5(_URL.encode(), usedforsecurity=False).hexdigest(),
        "project": project,
        "url": _URL,
        "fetch": {"save": ["__command__", message]},
        "process": {"callback": "_on_message"},
    }
    bootstrap.call_scheduler(settings, scheduler_rpc or bootstrap.scheduler_rpc(settings), "send_task", task)
    say(f"sent to {project}")
