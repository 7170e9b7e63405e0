"""`one`: script files, crawled in this process until nothing is left to do."""

from pathlib import Path

import click

from pyspider_lite import one
from pyspider_lite.cli import options
from pyspider_lite.cli.script import read_script
from pyspider_lite.database.script_files import project_name
from pyspider_lite.errors import ConfigError


@click.command("one")
@click.option("--verbose", is_flag=True, help="Log what happens, not only what goes wrong.")
@click.argument("scripts", nargs=-1, required=True, metavar="SCRIPT...")
@click.pass_context
def one_command(ctx: click.Context, scripts: tuple[str, ...], verbose: bool) -> int:
    """Crawl what the scripts say and print their results, one JSON object a line.

    Ends by itself: with 0, with 1 if some task failed, with 2 if a script cannot be loaded (which is tried once). `# rate: 2` and `# burst: 5` in a script limit its speed.
    """
    settings = options.settings_of(ctx, quiet=not verbose)
    files: dict[str, str] = {}
    for script in scripts:
        read_script(script)
        other = files.setdefault(project_name(Path(script)), script)
        if other != script:
            raise ConfigError(f"{other} and {script} would be one project, by their names: rename one of them")
    return one.run(settings, list(files.values()))
