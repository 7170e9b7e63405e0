"""The projects as `project list` shows them. Pure."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from pyspider_lite.models.project import ACTIVE_PROJECT, ProjectHead, ProjectState
from pyspider_lite.scheduler import explanation

#: characters of a reason in the table; --format jsonl has all of them
_REASON = 80


def as_rows(
    heads: Iterable[ProjectHead],
    states: Mapping[str, ProjectState],
    letters: Mapping[str, int],
    unloadable: Mapping[str, str],
) -> list[dict[str, Any]]:
    """A record for each project; ``letters``: its dead letters, ``unloadable``: why its script could not be loaded."""
    rows = []
    for head in heads:
        state = states.get(head.name) or ProjectState(project=head.name)
        paused = head.status in ACTIVE_PROJECT and state.paused_until
        rows.append(
            {
                "name": head.name, "group": head.group, "status": str(head.status), "rate": shown(head.rate),
                "burst": shown(head.burst), "active": state.active, "success": state.success, "failed": state.failed,
                "bad": state.bad, "dead_letters": letters.get(head.name, 0),
                "paused_until": explanation.moment(state.paused_until) if paused else "",
                "script_error": unloadable.get(head.name, ""),
            }
        )  # fmt: skip
    return rows


def as_table(rows: list[dict[str, Any]]) -> Iterator[str]:
    """Lines for people."""
    if not rows:
        yield "no projects; add one with: pyspider_lite project push FILE"
        return
    columns = list(rows[0])
    rows = [row | {"script_error": row["script_error"][:_REASON]} for row in rows]
    texts = [columns, *([str("" if row[column] is None else row[column]) for column in columns] for row in rows)]
    widths = [max(len(line[index]) for line in texts) for index in range(len(columns))]
    for line in texts:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def shown(rate: float) -> float | str:
    """A rate or a burst for people."""
    return "unlimited" if rate == float("inf") else rate
