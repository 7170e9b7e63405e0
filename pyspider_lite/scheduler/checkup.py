"""What only a running scheduler knows of its projects, for `doctor`: which it works on, and which tasks it will find by itself.

Called by `remote` in the scheduler's loop.
"""

from collections.abc import Iterable
from typing import Any

from pyspider_lite.scheduler.scheduler import Scheduler


def projects(scheduler: Scheduler) -> dict[str, dict[str, Any]]:
    """By name: whether it is worked on, its script was asked about itself, a pause holds it up, and how many of its tasks are known
    to be due (None: it is about to look into the table, where there may be more)."""
    return {
        name: {
            "active": project.active,
            "asked": project.info is not None,
            "paused": project.pause.paused(scheduler.now),
            "known": None if _looks(scheduler, name) else len(project.window) + scheduler.leases.tasks[name],
        }
        for name, project in scheduler.projects.items()
    }


def strangers(scheduler: Scheduler, name: str, taskids: Iterable[str]) -> list[str]:
    """Those of these tasks, due as the table says, that are neither in flight nor waiting here, nor looked for."""
    project = scheduler.projects.get(name)
    if project is None or not project.active or _looks(scheduler, name):
        return []
    return [taskid for taskid in taskids if not scheduler.has(name, taskid)]


def _looks(scheduler: Scheduler, name: str) -> bool:
    """Its window will be filled from the table before long."""
    window = scheduler.projects[name].window
    return window.more or window.next_due <= scheduler.now
