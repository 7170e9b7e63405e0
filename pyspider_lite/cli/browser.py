"""`phantomjs` and `puppeteer`: pyspider's commands, which supervisor files of its users start. There is no browser behind them yet.

They stay up until a signal ends them, so that such files work as they are; a page that asks for a browser fails with status 501.
"""

import logging
import queue
from collections.abc import Callable

import click

from pyspider_lite import bootstrap, exit_codes
from pyspider_lite.cli import options

logger = logging.getLogger(__name__)


def _wait(name: str, ctx: click.Context) -> int:
    """Say once what this is, and wait for a signal."""
    options.settings_of(ctx)
    # unlike an Event it can be used by a signal handler that interrupts the thread which waits
    ended: queue.SimpleQueue[None] = queue.SimpleQueue()
    with bootstrap.stop_on_signals(lambda: ended.put(None)) as received:
        logger.warning(
            "%s renders nothing: a browser role of pyspider_lite will replace this command. Until then it only waits, and "
            'tasks whose fetch_type names a browser fail with status 501, "... is not enabled."',
            name,
        )
        ended.get()
    logger.info("%s exiting", name)
    return exit_codes.of_signal(received[0])


def _accepts(port: int) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Decorator: the command takes what pyspider's took (behaviour C63, C64). It has no meaning yet."""

    def add(function: Callable[..., int]) -> Callable[..., int]:
        for parameter in (
            click.argument("args", nargs=-1, type=click.UNPROCESSED, expose_value=False),
            click.option("--auto-restart", metavar="TEXT", help="Accepted, without effect.", expose_value=False),
            click.option("--port", type=int, help=f"Accepted, without effect ({port}).", expose_value=False),
        ):
            function = parameter(function)
        return function

    return add


# what belongs to the browser (--ignore-ssl-errors=true) is taken among the free arguments
@click.command("phantomjs", context_settings={"ignore_unknown_options": True})
@click.option("--phantomjs-path", metavar="TEXT", help="Accepted, without effect.", expose_value=False)
@_accepts(25555)
@click.pass_context
def phantomjs_command(ctx: click.Context) -> int:
    """Hold the place of a browser that renders pages; it does not yet."""
    return _wait("phantomjs", ctx)


@click.command("puppeteer", context_settings={"ignore_unknown_options": True})
@_accepts(22222)
@click.pass_context
def puppeteer_command(ctx: click.Context) -> int:
    """Hold the place of a browser that renders pages; it does not yet."""
    return _wait("puppeteer", ctx)
