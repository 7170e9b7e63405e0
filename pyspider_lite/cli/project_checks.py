"""What can be wrong with projects, their tasks, counts, control work and tables, one sentence each. Pure; called by `doctor`.

What a crawl does while it goes on must never look like a fault here.
"""

from collections.abc import Iterator

from pyspider_lite.cli.picture import REPAIR, Found, Picture, Remedy, some
from pyspider_lite.database.inspection import Compared, ControlSeen
from pyspider_lite.models.control import ControlKind
from pyspider_lite.models.project import ACTIVE_PROJECT

#: seconds after which control work should be done: the answer of a script about itself, a deletion, all else
INFO_LATE, DELETE_LATE, CONTROL_LATE = 120.0, 60.0, 600.0
#: rows of control work that wait for a project which does not run, and are worth a sentence
MANY_HELD = 1_000
#: projects with the same trouble that get a sentence each
SENTENCES = 10


def check(picture: Picture) -> Iterator[Found]:
    """All of it, in the order in which it should be mended."""
    for one in (_controls, _held, _projects, _scripts, _counts, _tasks, _tables, _letters):
        found = list(one(picture))
        yield from found[:SENTENCES]
        if len(found) > SENTENCES:
            # a thousand projects with one trouble are one trouble
            more = f"{len(found) - SENTENCES} more like these: run doctor again when they are mended"
            yield Found(found[0].check, "more", more)


def _controls(picture: Picture) -> Iterator[Found]:
    strangers: dict[str, int] = {}
    for row in picture.controls:
        if not row.readable:
            yield Found(
                "control",
                row.id,
                f"the row {row.id[:80]} in lite-control, project {row.project}, cannot be read, so it is left out: {REPAIR} makes it a "
                "dead letter",
                Remedy.CONTROL,
            )
        elif is_astray(picture, row):
            strangers[row.project] = strangers.get(row.project, 0) + 1
        elif picture.view.leads and (late := _late(picture, row)):
            yield late
    for name, rows in sorted(strangers.items()):
        yield Found(
            "control",
            name,
            f"{rows} row{'s' * (rows != 1)} of control work wait{'s' * (rows == 1)} for project {name}, which does not exist: {REPAIR} makes dead letters of them",
            Remedy.CONTROL,
        )


def _held(picture: Picture) -> Iterator[Found]:
    for name, rows in sorted(picture.held.items()):
        head = picture.heads.get(name)
        if head is not None and head.status not in ACTIVE_PROJECT and rows >= MANY_HELD:
            yield Found(
                "control",
                f"{name} {head.status}",
                f"{name} is {head.status} and holds {rows} rows of control work (messages, cron ticks, starts) that nothing will give out until it "
                f"runs: `pyspider_lite project set {name} --status RUNNING` has them done, `pyspider_lite project delete {name}` drops them",
            )


def is_astray(picture: Picture, row: ControlSeen) -> bool:
    """Its project does not exist; a deletion may be half done."""
    return row.project not in picture.heads and row.kind != ControlKind.DELETE


def _late(picture: Picture, row: ControlSeen) -> Found | None:
    age = picture.view.now - row.created
    head = picture.heads.get(row.project)
    if row.kind == ControlKind.DELETE:
        text = (
            f"the deletion of {row.project} was asked for {age:.0f} s ago and is not done: the scheduler's log says why"
        )
        return Found("control", row.id, text) if age > DELETE_LATE else None
    if head is None or head.status not in ACTIVE_PROJECT or row.generation not in ("", head.generation):
        return None
    if row.kind == ControlKind.INFO:
        text = (
            f"the script of {row.project} was asked about itself {age:.0f} s ago and has not answered, so no task of it is given out: see that "
            "a processor is at work, and what its log says"
        )
        return Found("project", row.project, text) if age > INFO_LATE else None
    text = f"{row.kind} of {row.project} waits for {age:.0f} s: see that a processor is at work, and what its log says"
    return Found("control", f"{row.project} {row.kind}", text) if age > CONTROL_LATE else None


def _projects(picture: Picture) -> Iterator[Found]:
    if picture.live is None:
        return
    asked = {row.project for row in picture.controls if row.kind == ControlKind.INFO}
    for name, head in sorted(picture.heads.items()):
        known = picture.live.get(name)
        if head.status not in ACTIVE_PROJECT:
            continue
        if known is None:
            text = f"{name} is {head.status}, but the scheduler does not know it: see that both have the same projectdb, then restart it"
            yield Found("project", name, text)
        elif known["active"] and not known["asked"] and name not in asked:
            yield Found(
                "project",
                name,
                f"{name} is without info: nobody asks its script about itself, so no task of it is given out; {REPAIR} has it asked",
                Remedy.LOOK_AGAIN,
            )


def _scripts(picture: Picture) -> Iterator[Found]:
    for name, reason in sorted(picture.unloadable.items()):
        head = picture.heads.get(name)
        if head is not None and head.status in ACTIVE_PROJECT:
            text = (
                f"the script of {name} could not be loaded, so none of its tasks can run: {reason}; mend it and store it by "
                "`pyspider_lite project push` (it is asked anew when it changes), or install what it needs where processors run; "
                f"`pyspider_lite project run {name}` then calls its on_start again"
            )
            yield Found("script", name, text)


def _counts(picture: Picture) -> Iterator[Found]:
    for name, table in sorted(picture.tables.items()):
        compared = table.compared
        if compared.kept is None:
            if any(compared.found.values()):
                text = (
                    f"no counts are kept of {name}, whose table has {_numbers(compared.found, picture.limit)}: `project list` and on_finished go "
                    f"wrong; {REPAIR} counts them"
                )
                yield Found("counts", name, text, Remedy.COUNTS)
            continue
        wrong = wrong_counts(compared, picture.limit)
        if table.periodic is not None and table.periodic[0] != table.periodic[1]:
            wrong["periodic"] = table.periodic[1]
        if wrong:
            kept = {**compared.kept, "periodic": table.periodic[0] if table.periodic else 0}
            text = (
                f"{name} is kept as {_numbers({key: kept[key] for key in wrong}, 0)}, but its table has {_numbers(wrong, picture.limit)}: "
                f"{REPAIR} counts again"
            )
            yield Found("counts", name, text, Remedy.COUNTS)
    for name, one in sorted(picture.states.items()):
        if name in picture.heads and name not in picture.with_tasks and one.active + one.success + one.failed + one.bad:
            text = (
                f"{name} is kept as {one.active + one.success + one.failed + one.bad} tasks, but its table is gone: restore it from a backup; "
                f"or {REPAIR} starts at 0, then restart the scheduler and run the project"
            )
            yield Found("counts", name, text, Remedy.COUNTS)


def wrong_counts(compared: Compared, limit: int) -> dict[str, int]:
    """The names whose kept count is not that of the rows, as far as these were counted."""
    kept = compared.kept or {}
    return {
        name: found
        for name, found in compared.found.items()
        if (kept.get(name, 0) != found if found <= limit else kept.get(name, 0) <= limit)
    }


def _numbers(counts: dict[str, int], limit: int) -> str:
    return ", ".join(
        f"{name} {f'over {limit}' if limit and number > limit else number}" for name, number in counts.items()
    )


def _tasks(picture: Picture) -> Iterator[Found]:
    for name, table in sorted(picture.tables.items()):
        if table.without_due:
            text = (
                f"{_tasks_of(name, table.without_due)} ACTIVE without a due time, so nobody will ever run {_them(table.without_due)}: another program wrote {_them(table.without_due)}; "
                f"{REPAIR} makes {_them(table.without_due)} due"
            )
            yield Found("tasks", f"{name} due", text, Remedy.DUE)
        if table.strange:
            text = f"{_tasks_of(name, table.strange)} in no known state: set the status to 1 (to run), 2, 3 or 4 in its table"
            yield Found("tasks", f"{name} status", text)
        if table.broken:
            named = [f"{taskid} ({column})" for taskid, column in table.broken]
            text = (
                f"of {name} these columns hold no JSON that can be read: {some(named)}; such a task runs without them, and with such a pending "
                "it cannot end: put them right in its table, or delete these rows"
            )
            yield Found("tasks", f"{name} json", text)
    for name, pairs in sorted(picture.strangers.items()):
        if pairs:
            text = (
                f"{_tasks_of(name, [taskid for taskid, _ in pairs])} due and without a lease, and the scheduler does not know of that: changed "
                f"behind its back; {REPAIR} has it look again"
            )
            yield Found("tasks", f"{name} lease", text, Remedy.LOOK_AGAIN)


def _tasks_of(project: str, taskids: list[str]) -> str:
    number = len(taskids)
    return f"{number} task{'s' * (number != 1)} of {project} ({some(taskids)}) {'are' if number != 1 else 'is'}"


def _them(taskids: list[str]) -> str:
    return "them" if len(taskids) != 1 else "it"


def _tables(picture: Picture) -> Iterator[Found]:
    for kind, what, orphans in (
        ("taskdb", "tasks", picture.orphans),
        ("resultdb", "results", picture.orphan_results),
    ):
        for name, rows in sorted(orphans.items()):
            many = f"over {picture.limit}" if rows > picture.limit else str(rows)
            keep = f" (`result export {name}` saves them)" if what == "results" else ""
            text = (
                f"the {kind} has {many} {what} of {name}, but the projectdb has no such project: push its script again to go on with it, "
                f"and `project delete {name}` then if it is to go{keep}"
            )
            yield Found("tables", f"{kind} {name}", text)


def _letters(picture: Picture) -> Iterator[Found]:
    number = picture.dead_letters
    if number:
        many = f"over {picture.limit}" if number > picture.limit else str(number)
        text = (
            f"{many} dead letter{'s' * (number != 1)}: work that was given up is kept; `pyspider_lite dead-letter list` says why, "
            "`dead-letter retry` and `dead-letter purge` end it"
        )
        yield Found("dead-letters", "", text)
