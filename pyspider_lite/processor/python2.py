"""Says so when a script fails because it was written for Python 2. Called by the project loader, the runner, and the commands that read a script.

A guess from the exception, made only for what cannot happen to a script that was ever run on Python 3.
"""

import re
import traceback

_ADVICE = "this is Python 2; scripts run on Python 3 here, convert it (by 2to3, or by hand)"
#: modules and names that Python 3 has no more, and where they went
_MODULES = {
    "urllib2": "urllib.request",
    "urlparse": "urllib.parse",
    "httplib": "http.client",
    "cookielib": "http.cookiejar",
    "HTMLParser": "html.parser",
    "StringIO": "io",
    "cStringIO": "io",
    "Queue": "queue",
    "cPickle": "pickle",
    "ConfigParser": "configparser",
    "__builtin__": "builtins",
    "MySQLdb": "pymysql (after pymysql.install_as_MySQLdb() that name works too)",
}
_NAMES = {
    "unicode": "str",
    "basestring": "str",
    "unichr": "chr",
    "xrange": "range",
    "raw_input": "input",
    "long": "int",
    "reload": "nothing: texts are Unicode without it",
    "execfile": "exec",
    "reduce": "functools.reduce",
    "cmp": "a key function",
}
_ATTRIBUTES = {
    "has_key": "in",
    "iteritems": "items",
    "iterkeys": "keys",
    "itervalues": "values",
    "setdefaultencoding": "nothing: texts are Unicode without it",
}
#: functions that went from the module urllib to urllib.parse and urllib.request
_URLLIB = ("quote", "unquote", "quote_plus", "unquote_plus", "urlencode", "urlopen", "urlretrieve")
#: what a line of Python 2 that Python 3 cannot read looks like
_SYNTAX = re.compile(
    r"(^|[:;])\s*(print(\s+[^(=\s]|\s*$|\s+\(.*\)\s*[%,]|\s*>>)|raise\s+[\w.]+\s*,|exec\s+[^(])"
    r"|^\s*except\s+[\w.()\s,]+,\s*\w+\s*:|\blambda\s*([\w\s,]*,)?\s*\(|\bdef\s+\w+\s*\((.*,)?\s*\("
    r"|\b[uU][rR]['\"]|`|<>|\b\d+[lL]\b|\b0\d+\b"
)


#: a script's line in a traceback
_LINE = re.compile(r'File "<[^>]+>", line (\d+)')


def hint(error: BaseException, trace: str = "") -> str:
    """What to add to the exception's text, with the line that ``trace`` ends in; "" if it does not look like Python 2."""
    if isinstance(error, SyntaxError):  # its text has the line
        old = isinstance(error, TabError) or (error.text and _SYNTAX.search(error.text))
        return f" ({_ADVICE})" if old else ""
    now = _now(error)
    if now is None or _ADVICE in str(error):
        return ""
    lines = _LINE.findall(trace)
    return f" ({f'line {lines[-1]}: ' if lines else ''}{_ADVICE}; it is {now} now)"


def explain(error: BaseException) -> None:
    """Have the exception say it itself, for one that is raised on."""
    added = hint(error, "".join(traceback.format_tb(error.__traceback__)))
    if added and isinstance(error, SyntaxError | ImportError):
        error.msg = f"{error.msg}{added}"
    elif added:
        error.args = (f"{error}{added}",)


def _now(error: BaseException) -> str | None:
    """What Python 3 has in place of what is missing."""
    name = getattr(error, "name", None) or ""
    if isinstance(error, ModuleNotFoundError):
        return _MODULES.get(name.partition(".")[0])
    if isinstance(error, NameError):
        return _NAMES.get(name)
    if isinstance(error, TypeError) and 'Did you mean "print(' in str(error):
        return "print(..., file=...)"
    if not isinstance(error, ImportError | AttributeError):
        return None
    function = next((each for each in _URLLIB if f"'{each}'" in str(error)), None)
    if function and "'urllib'" in str(error):
        return f"urllib.parse.{function}" if "url" not in function or function == "urlencode" else "urllib.request"
    is_dict = isinstance(getattr(error, "obj", None), dict)
    return _ATTRIBUTES.get(name) if is_dict or name == "setdefaultencoding" else None
