"""Every exception that crosses a module border of this package.

    PyspiderLiteError
    ├── ConfigError            bad usage or configuration          exit code 2
    ├── RefusedToStart         a port, file or peer is in the way  exit code 3
    ├── BrokenMessage          bytes on a queue that are not ours
    ├── QueueError             the broker is away
    │   ├── QueueFull          no room before the deadline
    │   └── UnsendableMessage  no message can be made of it
    │       └── MessageTooLarge    larger than any broker will carry
    ├── DatabaseError          the database is away or refuses
    │   ├── DataError          this value cannot be stored (names the row)
    │   └── LostLeadership     another scheduler leads; write nothing
    ├── OverdueCall            a method of a user's class does not return
    └── ScriptError            a user's script cannot be loaded or run
        └── UnstorableValue    a result, save or message that is not JSON

What a fetch or a callback does wrong is data (a 599 response, a failed report), never an exception across a role's border.
A docstring is the default message, so that a bare ``raise QueueFull`` reads well.
"""


class PyspiderLiteError(Exception):
    """Something in pyspider_lite went wrong."""

    def __init__(self, message: str | None = None) -> None:
        super().__init__(message or (self.__doc__ or "").strip().partition("\n")[0])


class ConfigError(PyspiderLiteError):
    """The configuration is not usable."""


class RefusedToStart(PyspiderLiteError):
    """Something is in the way: of a daemon that is to start, or of what a command is to do."""


class BrokenMessage(PyspiderLiteError):
    """The message is not one of ours."""


class QueueError(PyspiderLiteError):
    """The message queue cannot be reached."""


class QueueFull(QueueError):
    """The message queue has no room."""


class UnsendableMessage(QueueError):
    """No message can be made of this."""


class MessageTooLarge(UnsendableMessage):
    """The message is larger than a message queue may carry."""


class CoordinationError(PyspiderLiteError):
    """ZooKeeper does not answer."""


class DatabaseError(PyspiderLiteError):
    """The database cannot be reached."""

    def __init__(self, message: str | None = None, where: str = "the database") -> None:
        super().__init__(message)
        #: the database's URL without its password, where it is known
        self.where = where


class DataError(DatabaseError):
    """The value cannot be stored in the database."""


class LostLeadership(DatabaseError):
    """Another scheduler has taken the lead."""


class OverdueCall(PyspiderLiteError):
    """The call does not return."""


class ScriptError(PyspiderLiteError):
    """The script cannot be run."""


class UnstorableValue(ScriptError):
    """The value cannot be stored as JSON."""


def text_of(error: BaseException) -> str:
    """str(error), which a user's own class may have broken (behaviour P22)."""
    try:
        return str(error)
    except BaseException as broken:  # SystemExit as well: it would end the process
        return f"{type(error).__name__} (its text cannot be had: {type(broken).__name__})"
