"""What one run of a callback produced."""

from typing import Any

from msgspec import Struct

from pyspider_lite.models.names import RunKey
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask


class Item(Struct, frozen=True):
    """One result of a run; ``item`` tells the items of one page apart ("" when it returned a single one)."""

    item: str
    #: JSON text
    result: str


class Message(Struct, frozen=True):
    """What ``send_message`` sent (behaviour H61)."""

    project: str
    message: Any
    url: str


#: in the place of a part's number (with ``parts`` 0): a dead letter's results on their second way to the resultdb
RETRIED = -1


class Report(Struct, frozen=True, kw_only=True, omit_defaults=True, tag="report"):
    """All that one run of a callback produced. It is applied whole, or not at all (design, section 4)."""

    project: str
    taskid: str
    url: str
    run: int
    generation: str = ""
    control: str = ""
    ok: bool = True
    #: {"fetch": {...}, "process": {...}, "save": ...} (behaviour P20 to P22); empty in all parts but the last
    track: dict[str, Any] = {}
    follows: list[NewTask] = []
    messages: list[Message] = []
    items: list[Item] = []
    #: given when there are items: what a user's ResultWorker sees as its task
    task: NewTask | None = None
    #: numbered from 0; a report that fits is part 0 of 1; RETRIED: results of a run that is over, of which nobody is to hear
    part: int = 0
    #: stated by the last part only: how many there are; 0 in the others
    parts: int = 1
    #: @not_send_status: close the lease, leave the row as it is
    no_status: bool = False
    #: as in the `Dispatch`: a worker may have died over it
    suspect: bool = False
    #: seconds before which it should not be tried again
    retry_after: float | None = None
    #: answer to _on_get_info (behaviour H63); of a cron job: why it left its tick out
    info: dict[str, Any] | None = None
    #: of the scheduler that gave the run out
    epoch: int = 0

    @classmethod
    def of(cls, run: "Dispatch | Report", /, **produced: Any) -> "Report":
        """On this run, or on the one that another report is on; ``produced``: the other fields."""
        return cls(
            project=run.project,
            taskid=run.taskid,
            url=run.url,
            run=run.run,
            generation=run.generation,
            control=run.control,
            epoch=run.epoch,
            **produced,
        )

    @property
    def key(self) -> RunKey:
        """The run it reports on."""
        return (self.project, self.control or self.taskid, self.run)
