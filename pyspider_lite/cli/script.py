"""Reading a user's script, for the commands that take one."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pyspider_lite.database.script_files import read_text
from pyspider_lite.errors import ConfigError, ScriptError
from pyspider_lite.processor import python2


def read_script(file: str) -> str:
    """The text of a script that Python can compile."""
    with _as_script_error(file):
        try:
            text = read_text(Path(file))
        except OSError as error:
            raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
        verify_script(text, file)
    return text


def verify_script(text: str, name: str) -> None:
    """Raise ScriptError if Python cannot compile it, which says nothing of whether it can be executed."""
    with _as_script_error(name):
        compile(text, name, "exec", dont_inherit=True)


@contextmanager
def _as_script_error(name: str) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        where = f"{name}:{error.lineno}" if error.lineno else name
        raise ScriptError(f"{where}: {error.msg}{python2.hint(error)}") from error
    except ValueError as error:
        raise ScriptError(f"{name}: not a text that Python can read: {error}") from error
