"""What is done to a crawl, and when: made from a seed alone. Pure; `run` carries it out.

Harms come in waves with calm between them: in a wave they fall together, and in the calm it shows what repairs itself without one.
"""

import random
from collections.abc import Iterator
from enum import StrEnum
from typing import NamedTuple

#: seconds of a wave and of the calm behind it
WAVE, CALM = 9.0, 6.0
#: SIGKILLs a minute, and how many of them at least find work in hand, of the judge's demands
KILLS, IN_HAND = 30, 20
#: SIGKILLs a minute that are planned: more than demanded, since some find nobody
_PLANNED_KILLS = 35
#: a leader's term and a worker's three beats are 6 s
_FREEZE = (7.0, 10.0)
_OUTAGE = (3.0, 6.0)
#: role -> how often it is chosen
_WEIGHTS = {"fetcher": 6, "processor": 6, "result_worker": 5, "scheduler": 3, "child": 2}
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


#: what can be done to the servers of a stack, each at least once in a run and about once a minute
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
    (Kind.STOP, "broker"),
    (Kind.KILL, "broker"),
    (Kind.FLUSH, "broker"),
    (Kind.FREEZE, "broker"),
    (Kind.LOCK, "database"),
)


def plan(seed: int, seconds: float, abilities: Abilities, kills_a_minute: float = _PLANNED_KILLS) -> list[Harm]:
    """All harms of a run of ``seconds``, in the order of time."""
    chance = random.Random(seed)
    minutes = seconds / 60

    def number(each_minute: float) -> range:
        return range(max(1, round(each_minute * minutes)))

    found = [
        Harm(_moment(chance, seconds), Kind.KILL, _process(chance)) for _ in range(round(kills_a_minute * minutes))
    ]
    for _ in number(3):
        found.append(Harm(_moment(chance, seconds), Kind.FREEZE, _process(chance, "child"), chance.uniform(*_FREEZE)))
        found.append(Harm(_moment(chance, seconds), Kind.TERM, _process(chance, "child")))
    for kind, target in abilities:
        for _ in number(0.75):
            found.append(Harm(_moment(chance, seconds), kind, target, _length(chance, kind)))
    return sorted(found)


def _length(chance: random.Random, kind: Kind) -> float:
    return 0.0 if kind is Kind.FLUSH else chance.uniform(*(_FREEZE if kind is Kind.FREEZE else _OUTAGE))


def _moment(chance: random.Random, seconds: float) -> float:
    """Within a wave."""
    waves = list(_waves(seconds))
    begin, end = chance.choice(waves)
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
