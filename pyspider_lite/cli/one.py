"""`one`: script files, crawled in this process until nothing is left to do."""

import click

from pyspider_lite import one
from pyspider_lite.cli import options
from pyspider_lite.cli.script import read_script


@click.command("one")
@click.option("--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@click.pass_context
def one_command(ctx: click.Context, scripts: tuple[str, ...], verbose: bool) -> int:
    """Crawl what the scripts say and print their results, one JSON object a line.

    Ends by itself: with 0, or with 1 if some task failed. `# rate: 2` and `# burst: 5` in a script limit its speed.
    """
    settings = options.settings_of(ctx, quiet=not verbose)
    for script in scripts:
        read_script(script)
    return one.run(settings, scripts)
