"""Scripts for Python 2 fail with a sentence that says so and names the line."""

import logging
import traceback

import pytest

from pyspider_lite.models.project import Project
from pyspider_lite.processor import python2
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.project_loader import ProjectLoader

HEAD = "from pyspider.libs.base_handler import *\nimport sys\n"


def load_error(script: str) -> str:
    def ask(name: str, md5: str, known: str) -> Script:
        return Script(md5="1", project=Project(name=name, script=script))

    with pytest.raises(Exception) as caught:
        ProjectLoader(ask, logging.NullHandler()).get("old")
    return str(caught.value)


@pytest.mark.parametrize(
    ("line", "now"),
    [
        ('print "hello"', ""),
        ("print", None),
        ("print >>sys.stderr, 'x'", "print("),
        ("try:\n    pass\nexcept Exception, e:\n    pass", ""),
        ("raise ValueError, 'x'", ""),
        ("x = ur'a'", ""),
        ("x = 10L", ""),
        ("x = 0777", ""),
        ("x = 1 <> 2", ""),
        ("if 1:\n        x = 1\n\tx = 2", ""),
        ("reload(sys)", "nothing"),
        ("sys.setdefaultencoding('utf8')", "nothing"),
        ("import urllib2", "urllib.request"),
        ("from urlparse import urljoin", "urllib.parse"),
        ("from urllib import quote", "urllib.parse.quote"),
        ("import urllib; urllib.urlencode({})", "urllib.parse.urlencode"),
        ("x = unicode('a')", "str"),
        ("{}.has_key(1)", "in"),
    ],
)
def test_the_line_is_named(line: str, now: str | None) -> None:
    text = load_error(HEAD + line + "\n")
    if now is None:  # also Python 3
        assert text == "need BaseHandler in project module"
        return
    assert "this is Python 2" in text and f"it is {now}" in text if now else "this is Python 2" in text
    wrong = {"try": 5, "if 1": 5}.get(line[:4].rstrip(":"), 3)
    assert f"line {wrong}" in text


@pytest.mark.parametrize(
    "line", ["x = (", "import no_such_module", "x = nothing_like_it", "[].has_key(1)", "print 1 if"]
)
def test_other_errors_are_left_alone(line: str) -> None:
    text = load_error(HEAD + line + "\n")
    assert ("Python 2" in text) == (line == "print 1 if")


def test_in_a_callback() -> None:
    try:
        exec(compile("def f():\n    return {}.iteritems()\nf()", "<old>", "exec"), {})
    except AttributeError as error:
        found = python2.hint(error, traceback.format_exc())
    assert found.startswith(" (line 2: this is Python 2;") and found.endswith("it is items now)")
