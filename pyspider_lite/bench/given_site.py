"""A site that somebody else serves (`bench --site URL`). What it has is not known, so the bare loop of `floor` crawls it first: what that
finds is what every crawler has to find."""

import json
import subprocess
import sys
from pathlib import Path

from pyspider_lite.errors import RefusedToStart


class GivenSite:
    """Everything below the folder of ``url`` that is reachable from it by links. ``folder`` is for the list of pages."""

    #: not known
    began: float | None = None
    answered: int | None = None

    def __init__(self, url: str, folder: Path) -> None:
        self.url = url
        file = folder / "pages.jsonl"
        words = [sys.executable, "-m", "pyspider_lite.bench.floor", url, str(file)]
        done = subprocess.run(words, capture_output=True, text=True)
        if done.returncode:
            reason = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise RefusedToStart(f"{url} cannot be crawled: {reason}")
        lines = map(json.loads, file.read_text().splitlines())
        self._expected = {line["url"]: (line["title"] or "").strip() for line in lines}
        self.pages = len(self._expected)

    def expected(self) -> dict[str, str]:
        """URL -> title."""
        return self._expected

    def forget(self) -> None:
        """Nothing is counted here."""
