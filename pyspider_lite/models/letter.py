"""What could not be used and is kept aside: as a worker sends it, and as the taskdb keeps it."""

from enum import StrEnum

from msgspec import Struct


class Broken(Struct, frozen=True, kw_only=True, tag="broken"):
    """A message that could not be read, or a result that could not be stored, to be kept aside with the reason."""

    queue: str
    reason: str
    #: the beginning of it
    body: bytes
    #: bytes that it had
    size: int = 0
    worker: str = ""
    time: float = 0.0
    #: a LetterKind
    kind: str = "message"
    project: str = ""
    taskid: str = ""


class LetterKind(StrEnum):
    """What a dead letter was."""

    #: a message of a queue (or one task in it) that could not be read
    MESSAGE = "message"
    #: a submission that could not be stored
    SUBMISSION = "submission"
    #: a report that could not be stored, not even as a failure
    REPORT = "report"
    #: a task that was given up, not because its retries were used up: workers died over it, or no queue carries it
    TASK = "task"
    #: the results of a run that could not be stored; the run has failed
    RESULT = "result"
    #: control work that `doctor --repair` set aside: unreadable, or of a project that does not exist
    CONTROL = "control"


class DeadLetter(Struct, frozen=True, kw_only=True):
    """Something that was given up: kept with its payload and the reason."""

    #: a LetterKind
    kind: str
    queue: str = ""
    project: str = ""
    taskid: str = ""
    reason: str
    #: what could not be used, or its beginning; of a task nothing, for its row is there
    payload: bytes
    #: bytes that it had
    size: int = 0
    time: float
    #: its id, given by the database
    seq: int = 0

    @property
    def cut(self) -> bool:
        """Only the beginning was kept, so it can be looked at but not used again."""
        return self.size > len(self.payload)


class LetterCount(Struct, frozen=True, kw_only=True):
    """How many dead letters there are of one kind in one project ("" for those of no project)."""

    project: str
    kind: str
    count: int
    #: of their payloads
    bytes: int
