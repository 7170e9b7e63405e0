"""What the commands' exit codes mean, and which error ends in which. Supervisor's ``exitcodes`` and users' scripts rely on them."""

from pyspider_lite.errors import ConfigError, DatabaseError, PyspiderLiteError, QueueError, RefusedToStart, ScriptError

#: done; for a daemon: it was asked to end by other means than a signal
DONE = 0
#: `one`: some tasks failed
TASKS_FAILED = 1
#: `cluster list`: something is missing or does not answer
INCOMPLETE = 1
#: `doctor`: something is wrong, and was not mended
UNWELL = 1
#: bad usage, configuration or script; trying again does not help
BAD_CONFIG = 2
#: something was in the way: a port, a file, a peer, a database; trying again may help
REFUSED = 3
#: a defect of this program
INTERNAL = 4
#: a result worker: `on_result` of a user's class did not return in time; to be started again
OVERDUE = 5
#: ended by a signal, after the work in hand was finished
HUNG_UP = 129
INTERRUPTED = 130
TERMINATED = 143


def of_error(error: BaseException) -> int:
    """The exit code for an error that reached the top."""
    if isinstance(error, ConfigError | ScriptError):
        return BAD_CONFIG
    if isinstance(error, RefusedToStart | DatabaseError | QueueError | OSError):
        return REFUSED
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else INTERNAL


def sentence(error: BaseException) -> str:
    """The error as one sentence for a user."""
    if isinstance(error, PyspiderLiteError):
        return str(error)
    if isinstance(error, OSError) and error.strerror:
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror
    if isinstance(error, OSError) and str(error):  # one of ours, as TimeoutError
        return str(error)
    return f"internal error: {type(error).__name__}: {error}"


def of_signal(number: int) -> int:
    """The exit code of a process that a signal ended."""
    return 128 + number
