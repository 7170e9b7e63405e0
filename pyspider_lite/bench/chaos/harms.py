"""What is done to a crawl, and when: made from a seed alone. Pure; `run` carries it out.

Harms come in waves with calm between them: in a wave they fall together, and in the calm it shows what repairs itself without one.
"""

import itertools
import random
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

#: seconds of a wave and of the calm behind it
WAVE, CALM = 9.0, 6.0
#: SIGKILLs a minute, and how many of them at least find work in hand, of the judge's demands
KILLS, IN_HAND = 30, 20
#: SIGKILLs a minute that are planned: more than demanded, since some find nobody
_PLANNED_KILLS = 40
#: a leader's term and a worker's three beats are 6 s
_FREEZE = (7.0, 10.0)
_OUTAGE = (3.0, 6.0)
#: role -> how often it is chosen
_WEIGHTS = {"fetcher": 8, "processor": 7, "result_worker": 5, "scheduler": 2, "child": 2}
#: of each role
COUNT = 2


class Kind(StrEnum):
    """What is done."""

    #: SIGKILL
    KILL = "kill"
    #: SIGSTOP, and SIGCONT after some seconds
    FREEZE = "freeze"
    #: SIGTERM
    TERM = "term"
    #: a server ends in order, and starts after some seconds
    STOP = "stop"
    #: all that waits in the queues is thrown away
    FLUSH = "flush"
    #: a server closes its connections, several times
    CUT = "cut"
    #: somebody else holds the write lock of an SQLite file
    LOCK = "lock"


class Harm(NamedTuple):
    """``at`` seconds after the beginning, ``kind`` is done to ``target`` (a process as role[index], "broker" or "database")."""

    at: float
    kind: Kind
    target: str
    #: how long it lasts, 0 for what is over at once
    seconds: float = 0.0

    @property
    def role(self) -> str:
        """Of a process."""
        return self.target.partition("[")[0]

    @property
    def number(self) -> int:
        """Which of its role it is."""
        return int(self.target.partition("[")[2].rstrip("]") or 0)


#: over at once
_AT_ONCE = (Kind.FLUSH, Kind.CUT)
#: what can be done to the servers of a stack
Abilities = tuple[tuple[Kind, str], ...]
SERVERS: Abilities = (
    (Kind.STOP, "broker"),
    (Kind.KILL, "broker"),
    (Kind.FLUSH, "broker"),
    (Kind.CUT, "broker"),
    (Kind.STOP, "database"),
    (Kind.KILL, "database"),
    (Kind.CUT, "database"),
)
BUILTIN: Abilities = (
    (Kind.CUT, "broker"),
    (Kind.STOP, "broker"),
    (Kind.KILL, "broker"),
    (Kind.FLUSH, "broker"),
    (Kind.FREEZE, "broker"),
    (Kind.LOCK, "database"),
)


def plan(seed: int, seconds: float, abilities: Abilities) -> list[Harm]:
    """All harms of a run of ``seconds``, in the order of time."""
    chance = random.Random(seed)
    minutes = seconds / 60

    def number(each_minute: float) -> range:
        return range(max(1, round(each_minute * minutes)))

    found = [
        Harm(_moment(chance, seconds), Kind.KILL, _process(chance)) for _ in range(round(_PLANNED_KILLS * minutes))
    ]
    for _ in number(3):
        found.append(Harm(_moment(chance, seconds), Kind.FREEZE, _process(chance, "child"), chance.uniform(*_FREEZE)))
        found.append(Harm(_moment(chance, seconds), Kind.TERM, _process(chance, "child")))
    return sorted([*found, *_of_servers(chance, seconds, abilities)])


def _of_servers(chance: random.Random, seconds: float, abilities: Abilities) -> Iterator[Harm]:
    """In every second wave a server is away, in the others it only loses something: without servers there is soon nothing in hand
    that could be lost."""
    away = [ability for ability in abilities if ability[0] not in _AT_ONCE]
    losses = [ability for ability in abilities if ability[0] in _AT_ONCE]
    for turns in (away, losses):
        chance.shuffle(turns)
    turn = itertools.chain.from_iterable(zip(itertools.cycle(away), itertools.cycle(losses), strict=False))
    for (begin, end), (kind, target) in zip(_waves(seconds), turn, strict=False):
        length = 0.0 if kind in _AT_ONCE else chance.uniform(*(_FREEZE if kind is Kind.FREEZE else _OUTAGE))
        yield Harm(chance.uniform(begin, end), kind, target, length)


def _moment(chance: random.Random, seconds: float) -> float:
    """Within a wave."""
    begin, end = chance.choice(list(_waves(seconds)))
    return chance.uniform(begin, end)


def _waves(seconds: float) -> Iterator[tuple[float, float]]:
    begin = 0.0
    while begin < seconds:
        yield begin, min(begin + WAVE, seconds)
        begin += WAVE + CALM


def _process(chance: random.Random, *but: str) -> str:
    roles = [role for role in _WEIGHTS if role not in but]
    role = chance.choices(roles, [_WEIGHTS[role] for role in roles])[0]
    return f"{role}[{chance.randrange(COUNT)}]"
