"""What options of the programs of the bench may be; anything else is refused before hours are spent on it."""

import math
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
from click.types import StringParamType

from pyspider_lite.handler.url import BadUrl, build_url


class Finite(click.FloatRange):
    """A number in a range, which "nan" is not, nor is "inf" unless ``endless``: `float` takes both, and nan is outside of no range."""

    def __init__(self, low: float | None = None, high: float | None = None, *, endless: bool = False) -> None:
        super().__init__(low, high)
        self._endless = endless

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        number = super().convert(value, param, ctx)
        if math.isnan(number) or (math.isinf(number) and not self._endless):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class EmptyFolder(click.Path):
    """A folder that is not there yet or has nothing in it: what is left there of another run would pass for this one's."""

    def __init__(self) -> None:
        super().__init__(file_okay=False, path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        folder: Any = super().convert(value, param, ctx)
        if folder.exists() and any(folder.iterdir()):
            self.fail(f"{folder} is not empty.", param, ctx)
        return folder


class PageUrl(StringParamType):
    """Of a page that can be crawled, as its task has it: with a path, for what is crawled is what is below its folder."""

    name = "url"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        try:
            url = build_url(value)
        except BadUrl as error:
            self.fail(f"{value}: {error}.", param, ctx)
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            self.fail(f"{value!r} is not an http or https URL.", param, ctx)
        return url


def try_to_write(file: Path) -> None:
    """Raises OSError if nothing can be written to it, now and not after the work; leaves it as it is."""
    is_new = not file.exists()
    with file.open("ab"):
        pass
    if is_new:
        file.unlink()
