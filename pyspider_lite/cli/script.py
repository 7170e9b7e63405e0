"""Reading a user's script, for the commands that take one."""

from pathlib import Path

from pyspider_lite.database.script_files import read_text
from pyspider_lite.errors import ConfigError, ScriptError
from pyspider_lite.processor import python2


def read_script(file: str) -> str:
    """The text of a script that Python can compile."""
    try:
        text = read_text(Path(file))
        compile(text, file, "exec", dont_inherit=True)
    except SyntaxError as error:
        where = f"{file}:{error.lineno}" if error.lineno else file
        raise ScriptError(f"{where}: {error.msg}{python2.hint(error)}") from error
    except ValueError as error:
        raise ScriptError(f"{file}: not a text that Python can read: {error}") from error
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    return text
