"""Which names a project may have, and how long ids become keys of a column. No database in here.

Called by whatever accepts a project's name from a person or a message, and by the tables of tasks, controls and results.
"""

import re
from hashlib import sha256

#: names that a table of pyspider's own has where tables carry no prefix (behaviour D30, D40)
RESERVED = frozenset({"projectdb", "taskdb", "resultdb"})

#: characters of a key column (behaviour D30 to D32)
KEY_LENGTH = 64

_NAME = re.compile(r"[A-Za-z0-9_]{1,64}")
_OLD_NAME = re.compile(r"\w{1,64}")


def verify_project_name(name: str) -> bool:
    """Whether a new project may be called ``name``: 1 to 64 ASCII letters, digits and underscores, no reserved word.

    Stricter than behaviour D13, which let the empty name and letters of other scripts pass; projects that exist under such a
    name are still read.
    """
    lower = name.lower()
    return _NAME.fullmatch(name) is not None and lower not in RESERVED and not lower.startswith("sqlite_")


def is_possible(name: str) -> bool:
    """Whether any project, one of pyspider's too (behaviour D13), may have this name. For names that come in messages: what a database
    says of others looks as if it was away."""
    return _OLD_NAME.fullmatch(name) is not None


def store_key(key: str) -> tuple[str, str | None]:
    """What is stored of an id: the key column, and the full id where the key is only a digest of it.

    As it is: 1 to 64 printable ASCII characters that do not end in a space (MariaDB compares without trailing spaces).
    """
    if len(key) <= KEY_LENGTH and key.isascii() and key.isprintable() and not key.endswith(" "):
        return key, None
    return "sha256-" + sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:48], key
