"""What a role tells of itself for `/healthz` and `/metrics`. The roles make these values, `health` shows them, and neither knows the
other; nor does a role whose health nobody asks for carry what shows it."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple, Protocol


class Reading(NamedTuple):
    """One number, or one for each value of a label, for `/metrics`."""

    name: str
    help: str
    #: value of the label -> number; "" where there is no label
    values: Mapping[str, float]
    label: str = ""
    #: it only grows
    counter: bool = False


class Watched(Protocol):
    """What is asked of a role, from threads of the server."""

    @property
    def stepped(self) -> float:
        """time.monotonic() of the last turn of its main loop."""
        ...

    def readings(self) -> Iterable[Reading]:
        """Its numbers."""
        ...
