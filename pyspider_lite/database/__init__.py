"""Opens the databases that URLs name (behaviour D1 to D10); the only place that knows which class serves which.

Nothing is connected here: an object connects when it is first used, and again whenever it must.
"""

from pyspider_lite.database import engine
from pyspider_lite.database.base import ProjectDB, ResultDB, TaskDB
from pyspider_lite.database.projectdb import SqlProjectDB
from pyspider_lite.database.resultdb import SqlResultDB
from pyspider_lite.database.script_files import ScriptFiles
from pyspider_lite.database.server import Description as Description
from pyspider_lite.database.taskdb import SqlTaskDB
from pyspider_lite.database.url import parse, same_database
from pyspider_lite.errors import ConfigError

_LOCAL = "local+projectdb://"


def connect_taskdb(url: str, *, prefixed: bool = False) -> TaskDB:
    """The taskdb at ``url``; raises ConfigError. ``prefixed``: the resultdb is in the same database (`share_tables`)."""
    return SqlTaskDB(parse(url, "taskdb", prefixed=prefixed))


def connect_resultdb(url: str, *, prefixed: bool = False) -> ResultDB:
    """The resultdb at ``url``; raises ConfigError. ``prefixed``: the taskdb is in the same database (`share_tables`)."""
    return SqlResultDB(parse(url, "resultdb", prefixed=prefixed))


def connect_projectdb(url: str) -> ProjectDB:
    """The projectdb at ``url``, or with local+projectdb://PATH,PATH the scripts in files (D10, D55); raises ConfigError."""
    if url.startswith(_LOCAL):
        return _script_files(url)
    return SqlProjectDB(parse(url, "projectdb"))


def share_tables(taskdb_url: str, resultdb_url: str) -> bool:
    """Whether the two URLs name one database, in which tables of one project would collide without prefixes."""
    try:
        return same_database(parse(taskdb_url, "taskdb"), parse(resultdb_url, "resultdb"))
    except ConfigError:
        return False  # whoever opens the one that is wrong says so


def describe(url: str, kind: str, *, prefixed: bool = False) -> Description:
    """What is found at ``url`` now, for people; nothing is made or changed. Raises ConfigError, and within some 20 s DatabaseError."""
    if url.startswith(_LOCAL) and kind == "projectdb":
        files = len(_script_files(url).heads())
        return Description(found=[f"{files} scripts in files"], problems=[] if files else ["no script file is there"])
    return engine.describe(parse(url, kind, prefixed=prefixed))


def _script_files(url: str) -> ScriptFiles:
    patterns = [part for part in url.removeprefix(_LOCAL).split(",") if part]
    if not patterns:
        raise ConfigError(f"{url}: names no script files")
    return ScriptFiles(patterns, rate=1.0, burst=3.0)
