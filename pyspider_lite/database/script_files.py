"""A projectdb over script files: each file is a RUNNING project (behaviour D55). For the `one` command and local+projectdb://."""

import glob
import math
import re
import tokenize
from collections.abc import Sequence
from pathlib import Path

from pyspider_lite.database.names import KEY_LENGTH
from pyspider_lite.errors import ConfigError, DatabaseError, ScriptError
from pyspider_lite.models.project import Project, ProjectHead, ProjectStatus

_READ_ONLY = "projects in script files are read-only: edit the file {0}"


class ScriptFiles:
    """See `ProjectDB`. ``patterns`` are paths or globs, looked at again in every call; files that went away are gone.

    ``rate`` and ``burst`` hold where a file has no comment lines such as ``# rate: 1.5`` and ``# burst: 3``.
    """

    def __init__(self, patterns: Sequence[str], rate: float = math.inf, burst: float = math.inf) -> None:
        self._patterns = list(patterns)
        self._rate = rate
        self._burst = burst
        for pattern in self._patterns:
            if not glob.has_magic(pattern) and not Path(pattern).is_file():
                raise ConfigError(f"{pattern}: no such script")

    def stamp(self) -> tuple[int, float]:
        """The sum of all times rather than the newest: an older file may take the place of a newer one."""
        files = self._files()
        return len(files), sum(mtime for _, mtime in files.values())

    def heads(self) -> list[ProjectHead]:
        projects = [project for name in sorted(self._files()) if (project := self.get(name))]
        return [
            ProjectHead(
                name=project.name,
                group=project.group,
                status=project.status,
                rate=project.rate,
                burst=project.burst,
                updatetime=project.updatetime,
                generation=project.generation,
            )
            for project in projects
        ]

    def get(self, name: str) -> Project | None:
        found = self._files().get(name)
        if found is None:
            return None
        path, mtime = found
        try:
            script = read_text(path)
        except ScriptError as error:
            # its tasks fail with the sentence; the projects in other files go on
            script = f"raise SyntaxError({str(error)!r})\n"
        except OSError as error:
            raise DatabaseError(f"{path}: cannot be read: {error.strerror}") from None
        return Project(
            name=name,
            status=ProjectStatus.RUNNING,
            script=script,
            rate=_comment(script, "rate", self._rate),
            burst=_comment(script, "burst", self._burst),
            updatetime=mtime,
        )

    def insert(self, project: Project) -> None:
        raise DatabaseError(_READ_ONLY.format(project.name))

    def update(self, name: str, **fields: object) -> bool:
        raise DatabaseError(_READ_ONLY.format(name))

    def drop(self, name: str, generation: str | None = None) -> None:
        raise DatabaseError(_READ_ONLY.format(name))

    def copy(self) -> "ScriptFiles":
        return ScriptFiles(self._patterns, self._rate, self._burst)

    def close(self) -> None:
        """Nothing is held open."""

    def _files(self) -> dict[str, tuple[Path, float]]:
        """Project name -> its file and mtime; of two files with one name the first counts."""
        files: dict[str, tuple[Path, float]] = {}
        for pattern in self._patterns:
            for path in map(Path, sorted(glob.glob(pattern))):
                try:
                    mtime = path.stat().st_mtime
                except OSError:
                    continue
                if path.is_file():
                    files.setdefault(project_name(path), (path, mtime))
        return files


def read_text(path: Path) -> str:
    """The text of a script, in the encoding that its byte order mark or its ``# coding:`` line names, else UTF-8.

    Raises ScriptError for what is no such text, and OSError.
    """
    try:
        with tokenize.open(path) as stream:
            return stream.read()
    except (SyntaxError, UnicodeError, LookupError) as error:
        raise ScriptError(
            f"{path}: cannot be decoded: save it as UTF-8, or name its encoding in its first line, as in # coding: gbk ({error})"
        ) from error


def project_name(path: Path) -> str:
    """The name of the project in a file: its stem, other characters than word characters turned into ``_``."""
    return re.sub(r"\W", "_", path.stem, flags=re.ASCII)[:KEY_LENGTH]


def _comment(script: str, word: str, default: float) -> float:
    """The number after ``word`` in a comment line that begins with it."""
    found = re.search(rf"^[ \t]*#+[ \t]*{word}\b[^\d\n]*(\d+(?:\.\d+)?)", script, re.MULTILINE | re.IGNORECASE)
    return float(found.group(1)) if found else default
