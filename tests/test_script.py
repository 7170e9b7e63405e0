"""`one` and `project push` say of a script for Python 2 that it is one, and in which line."""

from pathlib import Path

import pytest

from pyspider_lite.cli.script import read_script
from pyspider_lite.errors import ScriptError


@pytest.mark.parametrize(
    "code",
    [
        "print 'x'",
        "if 1: print 'x'",
        "raise ValueError, 'x'",
        "if 1: raise ValueError, 'x'",
        "exec 'x = 1'",
        "x = 0777",
        "x = `1`",
        "x = 1 <> 2",
        "x = lambda (a, b): a",
        "x = sorted({}.items(), key=lambda a, (b, c): c)",
        "def f(a, (b, c)): pass",
    ],
)
@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_python_2(tmp_path: Path, code: str) -> None:
    script = tmp_path / "old.py"
    script.write_text(f"import sys\n{code}\n")
    with pytest.raises(
        ScriptError, match=r"old\.py:2: .+ \(this is Python 2; scripts run on Python 3 here, convert it"
    ):
        read_script(str(script))


def test_python_2_in_an_except_clause(tmp_path: Path) -> None:
    script = tmp_path / "old.py"
    script.write_text("try:\n    pass\nexcept Exception, e:\n    pass\n")
    with pytest.raises(ScriptError, match=r"old\.py:3: .*this is Python 2"):
        read_script(str(script))


@pytest.mark.parametrize("code", ["x = (", "x = f(lambda: (1)) y", "def f(a=(1, 2)) pass", "if print('x') 1"])
def test_other_syntax_errors(tmp_path: Path, code: str) -> None:
    script = tmp_path / "new.py"
    script.write_text(f"import sys\n{code}\n")
    with pytest.raises(ScriptError, match=r"new\.py:2: ") as caught:
        read_script(str(script))
    assert "Python 2" not in str(caught.value)
