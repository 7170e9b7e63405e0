"""`scripts/chaos`: run chaos, or judge a run."""

import argparse
import math
import sys
import tempfile
from pathlib import Path

from pyspider_lite import exit_codes
from pyspider_lite.bench import ending
from pyspider_lite.bench.chaos import check, files
from pyspider_lite.bench.chaos.run import Options, run
from pyspider_lite.bench.chaos.stack import STACKS

#: exit codes beside those of every command: work was lost, doubled or left behind
WRONG = 1
#: nothing is wrong, but so little harm was done that it proves too little: the machine is slow, so try again when it does nothing else
TOO_LITTLE_HARM = 5

_EXIT_CODES = f"""exit codes: {exit_codes.DONE}: nothing is wrong and enough harm was done; {WRONG}: work was lost, doubled or left behind;
{exit_codes.BAD_CONFIG}: wrong usage, or no files of a run; {TOO_LITTLE_HARM}: nothing is wrong, but too little harm was done to tell, as on a slow machine"""


def main() -> int:
    """Options are in `--help`."""
    parser = argparse.ArgumentParser(prog="scripts/chaos", description=__doc__, epilog=_EXIT_CODES)
    defaults = Options(Path())
    parser.add_argument("--seed", type=int, default=defaults.seed, help="what the harms are chosen by")
    parser.add_argument("--minutes", type=float, default=defaults.minutes, help="how long harm is done")
    parser.add_argument("--stack", choices=sorted(STACKS), default=defaults.stack)
    parser.add_argument("--pages", type=int, default=defaults.pages, help="every seventh is slow")
    parser.add_argument("--folder", type=Path, help="where to leave the files; not given: a new one")
    parser.add_argument("--check", type=Path, metavar="DIR", help="only judge the files of a run")
    given = parser.parse_args()
    if not 0 < given.minutes < math.inf or given.pages < 1:
        parser.error("--minutes and --pages must be above 0 and finite")
    if given.folder is not None and given.folder.exists() and any(given.folder.iterdir()):
        parser.error(f"--folder {given.folder}: it is not empty")
    folder = given.check or given.folder or Path(tempfile.mkdtemp(prefix="pyspider_lite-chaos-"))
    if given.check is None:
        print(f"the files are in {folder}", flush=True)
        with ending.in_order():
            run(Options(folder.resolve(), given.seed, given.minutes, given.stack, given.pages))
    return show(folder)


def show(folder: Path) -> int:
    """Print the verdict; the exit code."""
    try:
        verdict = check.judge(files.load(folder))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        print(f"{folder}: not the files of a run of chaos: {_reason(error)}", file=sys.stderr)
        return exit_codes.BAD_CONFIG
    for name, value in verdict.figures.items():
        print(f"{name}: {value}")
    for problem in verdict.problems:
        print(f"WRONG: {problem}")
    for shortfall in verdict.shortfalls:
        print(f"TOO LITTLE HARM: {shortfall}")
    if verdict.problems:
        return WRONG
    print("nothing is wrong")
    return TOO_LITTLE_HARM if verdict.shortfalls else exit_codes.DONE


def _reason(error: Exception) -> str:
    match error:
        case KeyError():
            return f"a line or an entry of it has no field {error}"
        case TypeError() | AttributeError():
            return f"a field has a value of the wrong kind: {error}"
        case OSError():
            return f"{error.filename}: {error.strerror}"
        case _:
            return str(error)


if __name__ == "__main__":
    sys.exit(main())
