"""What becomes of a dead letter that is tried again: what its payload means now, and on which queue it goes. Pure.

A letter that can be read and is still of use gets a `Way`; of any other one it is said why it has none.
"""

from typing import Any

import msgspec
from msgspec import Raw, Struct
from msgspec.structs import replace

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage, UnsendableMessage
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, ResultBatch, StatusBatch, TaskBatch
from pyspider_lite.models.letter import DeadLetter, LetterKind
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import RETRIED, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler import rules

_KINDS: dict[str, type[msgspec.Struct]] = {
    QueueName.NEW_TASKS: NewTaskBatch,
    QueueName.STATUS: StatusBatch,
    QueueName.TO_FETCHER: TaskBatch,
    QueueName.TO_PROCESSOR: PageBatch,
    QueueName.CONTROL: PageBatch,
    QueueName.RESULTS: ResultBatch,
}


class Way(Struct, frozen=True):
    """Back on a queue."""

    queue: QueueName
    body: bytes


def content(letter: DeadLetter) -> Any:
    """What the payload says. Raises BrokenMessage if it still cannot be read."""
    if letter.cut:
        raise BrokenMessage(f"only the first {len(letter.payload)} of its {letter.size} bytes were kept")
    if letter.kind == LetterKind.CONTROL:
        raise BrokenMessage("doctor set it aside because nobody can carry it out; push the project or run it again")
    if letter.kind == LetterKind.SUBMISSION:
        return codec.unpack(letter.payload, NewTask)
    if letter.kind in (LetterKind.REPORT, LetterKind.RESULT):
        return codec.unpack(letter.payload, Report)
    if letter.queue == QueueName.NEW_TASKS and not letter.payload.startswith(codec.MAGIC[:3]):
        # of a batch only the task that was broken is kept
        return codec.unpack(letter.payload, NewTask)
    if letter.queue not in _KINDS:
        raise BrokenMessage(f"it came from {letter.queue or 'nowhere'}, and nobody waits for it there any more")
    return codec.decode(letter.payload, _KINDS[letter.queue])


def shown(letter: DeadLetter) -> Any:
    """What the payload says, for JSON. Raises BrokenMessage as `content`."""
    found = content(letter)
    if isinstance(found, NewTaskBatch):
        return {"tasks": [codec.unpack(bytes(task), dict) for task in found.tasks]}
    return msgspec.to_builtins(found)


def way_of(letter: DeadLetter) -> Way:
    """Where it goes again; not for one of kind ``task``, which is an order. Raises BrokenMessage with the reason if nowhere."""
    found = content(letter)
    if isinstance(found, NewTask):
        reason = rules.is_no_submission(found)
        if reason is not None:
            raise BrokenMessage(reason)
        message: msgspec.Struct = NewTaskBatch(tasks=[Raw(codec.pack(found))])
    elif isinstance(found, Report) and letter.kind == LetterKind.RESULT:
        message = ResultBatch(batch=f"letter-{letter.seq}", reports=[replace(found, part=RETRIED, parts=0)])
    elif isinstance(found, Report):
        message = StatusBatch(items=[found])
    elif isinstance(found, StatusBatch):
        # beats and claims told of a moment that is long over
        message = StatusBatch(items=[item for item in found.items if isinstance(item, Report)])
        if not message.items:
            raise BrokenMessage("it only told what workers did at that moment")
    else:
        return Way(QueueName(letter.queue), letter.payload)
    try:
        return Way(QueueName(letter.queue), codec.encode(message))
    except UnsendableMessage as error:
        raise BrokenMessage(str(error)) from error
