"""`result`: look at the results of a project and write them to a file, streamed, newest first (behaviour W50 to W53)."""

import contextlib
import csv
import errno
import itertools
import json
import os
import stat
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from typing import Any, TextIO

import click

from pyspider_lite import bootstrap, codec
from pyspider_lite.cli import options
from pyspider_lite.errors import ConfigError
from pyspider_lite.models.result import ResultRow

#: rows from which the columns of a CSV are chosen
CSV_SAMPLE = 30
#: links that lead to a file, as many as Linux follows
_MOST_LINKS = 40


@click.group("result")
def result_command() -> None:
    """Results: what the callbacks returned."""


@result_command.command()
@click.argument("project")
@click.option("--limit", type=click.IntRange(1), default=20, show_default=True, help="At most so many.")
@click.pass_context
def show(ctx: click.Context, project: str, limit: int) -> None:
    """Print the newest results of PROJECT, one JSON object a line."""
    _export(ctx, project, "jsonl", None, 0, limit)


@result_command.command()
@click.argument("project")
@click.option(
    "--format", "form", type=click.Choice(["jsonl", "json", "csv", "txt"]), default="jsonl", show_default=True
)
@click.option(
    "--output",
    metavar="FILE",
    help="Write to FILE, which appears when it is complete (a device or pipe at once); not given: print.",
)
@click.option("--offset", type=click.IntRange(0), default=0, help="Leave out so many of the newest.")
@click.option("--limit", type=click.IntRange(1), help="At most so many; not given: all.")
@click.pass_context
def export(ctx: click.Context, project: str, form: str, output: str | None, offset: int, limit: int | None) -> None:
    """Write all results of PROJECT: JSON lines, one JSON array, CSV, or URL and JSON in lines of text."""
    _export(ctx, project, form, output, offset, limit)


def _export(ctx: click.Context, project: str, form: str, output: str | None, offset: int, limit: int | None) -> None:
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_resultdb(settings) as resultdb:
        if project not in resultdb.projects():
            raise ConfigError(f"there are no results of a project {project}")
        rows = resultdb.select(project, offset=offset, limit=limit)
        if output is None:
            _FORMATS[form](rows, sys.stdout)
            return
        with _written(output) as stream:
            _FORMATS[form](rows, stream)


@contextlib.contextmanager
def _written(output: str) -> Iterator[TextIO]:
    """The file that the user named, replaced when all of it is there. A link stays a link, and what is no file is written to."""
    path = _behind_links(output)
    if path is None:
        with open(output, "a", encoding="utf-8", newline="") as stream:
            yield stream
        return
    # a name that nobody can have prepared, readable for nobody else until it is whole
    file, part = tempfile.mkstemp(prefix=".export-", suffix=".part", dir=os.path.dirname(path) or ".")
    try:
        with open(file, "w", encoding="utf-8", newline="") as stream:
            yield stream
            os.fchmod(file, _mode(path))
        os.replace(part, path)
    except BaseException:
        # on a full disk half an export would be what keeps it full
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise


def _mode(path: str) -> int:
    """The permissions that the file has, or would have if it were made now."""
    try:
        return stat.S_IMODE(os.stat(path).st_mode)
    except FileNotFoundError:
        mask = os.umask(0o077)
        os.umask(mask)
        return 0o666 & ~mask


def _behind_links(path: str) -> str | None:
    """Where the file is, or is to be; None for a device, a pipe, or what somebody has open (`/dev/stdout`), which nothing can replace."""
    if os.path.exists(path) and not os.path.isfile(path):
        return None
    for _ in range(_MOST_LINKS):
        if not os.path.islink(path):
            return path
        folder = os.path.realpath(os.path.dirname(path))
        if folder.startswith("/proc/"):
            return None
        path = os.path.join(folder, os.readlink(path))
    raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)


def _jsonl(rows: Iterable[ResultRow], stream: TextIO) -> None:
    stream.writelines(f"{text}\n" for text in map(_as_json, rows))


def _json_array(rows: Iterable[ResultRow], stream: TextIO) -> None:
    stream.write("[")
    for index, row in enumerate(rows):
        stream.write((", \n" if index else "") + _as_json(row))
    stream.write("]\n")


def _text(rows: Iterable[ResultRow], stream: TextIO) -> None:
    stream.writelines(f"{row.url}\t{_on_one_line(row.result)}\n" for row in rows)


def _csv(rows: Iterator[ResultRow], stream: TextIO) -> None:
    """Columns: url, the fields that the first rows have in common, and ``...`` with all others as JSON (behaviour W52)."""
    sample = list(itertools.islice(rows, CSV_SAMPLE))
    if not sample:
        return
    values = [codec.from_json(row.result) for row in sample]
    common = sorted(set.intersection(*(set(value) if isinstance(value, dict) else set() for value in values)))
    writer = csv.writer(stream)
    writer.writerow(["url", *common, "..."])
    for row in itertools.chain(sample, rows):
        value = codec.from_json(row.result)
        if isinstance(value, dict) and common:
            others = {key: part for key, part in value.items() if key not in common}
            writer.writerow([row.url, *(_cell(value[key]) if key in value else "" for key in common), _cell(others)])
        else:
            writer.writerow([row.url, *("" for _ in common), _cell(value)])


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _as_json(row: ResultRow) -> str:
    """The row as one line of JSON; the stored text goes in as it is."""
    result = _on_one_line(row.result)
    item = f', "item": {json.dumps(row.item, ensure_ascii=False)}' if row.item else ""
    url = json.dumps(row.url, ensure_ascii=False)
    return f'{{"taskid": {json.dumps(row.taskid)}, "url": {url}, "result": {result or "null"}, "updatetime": {row.updatetime}{item}}}'


def _on_one_line(result: str) -> str:
    return result if "\n" not in result else json.dumps(json.loads(result), ensure_ascii=False)


_FORMATS: dict[str, Callable[[Iterator[ResultRow], TextIO], None]] = {
    "jsonl": _jsonl,
    "json": _json_array,
    "csv": _csv,
    "txt": _text,
}
