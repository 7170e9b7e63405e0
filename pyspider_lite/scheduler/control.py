"""Control work: what each kind of control row looks like (design, section 4), and as what it is given out. Pure."""

from hashlib import md5
from typing import Any

from pyspider_lite import codec
from pyspider_lite import cron as clock
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.models import (
    CONTROL_RUN,
    Control,
    ControlKind,
    CronJob,
    Dispatch,
    FetchResponse,
    Message,
    NewTask,
    Page,
    ProjectState,
    Report,
)
from pyspider_lite.scheduler.project_state import ProjectRun

#: characters of an answer that are kept at most: each commit reads and writes them again
MAX_ANSWER = 8_000
#: kinds that must be done before a project is finished
COUNTS = frozenset({ControlKind.START, ControlKind.MESSAGE, ControlKind.FINISHED})
#: as pyspider enters on_start and on_finished (behaviour S50, W5)
_FORCED = {"age": 0, "priority": 9, "force_update": True}


def info(project: ProjectRun) -> Control:
    """Ask the project's script about itself (behaviour H63, S12)."""
    task = NewTask(
        "_on_get_info",
        project.name,
        "data:,_on_get_info",
        fetch={"save": ["min_tick", "retry_delay", "crawl_config"]},
        process={"callback": "_on_get_info"},
    )
    return _row(f"info:{project.name}:{project.head.generation}:{project.md5}", ControlKind.INFO, project, task)


def keep_answer(row: Control, report: Report) -> str:
    """What the answer to `info` becomes in the project's state row; "": it is not kept. What is wrong with a script that failed may be
    mended without a change of it."""
    if not report.ok or report.info is None:
        return ""
    try:
        text = codec.to_json({"of": row.id, "answer": report.info})
    except UnstorableValue:
        return ""
    return text if len(text) <= MAX_ANSWER else ""


def kept_answer(kept: str, row: Control) -> dict[str, Any] | None:
    """The answer that `keep_answer` kept, if it is the one to ``row``: of the same script and project."""
    try:
        found = codec.from_json(kept)
        return found["answer"] if found.get("of") == row.id and isinstance(found["answer"], dict) else None
    except (ValueError, LookupError, AttributeError):
        return None


def cron(project: ProjectRun, tick: int, job: CronJob) -> Control:
    """Run a cron job for one tick (behaviour S60). Wherever it has to wait, it is not begun after its grace."""
    save: dict[str, Any] = {"tick": tick}
    if job.name:
        save["job"] = job.name
    latest = clock.latest(job, tick)
    if latest is not None:
        save["latest"] = latest
    task = NewTask(
        "_on_cronjob",
        project.name,
        "data:,_on_cronjob",
        fetch={"save": save},
        process={"callback": "_on_cronjob"},
    )
    # a name may be as long as its writer likes, an id may not
    suffix = f":{md5(job.name.encode()).hexdigest()[:12]}" if job.name else ""
    return _row(f"cron:{project.name}:{project.head.generation}:{tick}{suffix}", ControlKind.CRON, project, task)


def cron_run(row: Control, project: ProjectRun) -> tuple[CronJob, int] | None:
    """The job and the tick that a row runs; None if it is no cron job, or the script has it no more."""
    if row.kind != ControlKind.CRON or project.info is None:
        return None
    save = row.task.fetch["save"]
    job = next((job for job in project.info.jobs if job.name == save.get("job", "")), None)
    return (job, save["tick"]) if job is not None else None


def finished(project: ProjectRun, counts: ProjectState) -> Control:
    """The crawl with the number of ``counts`` is over (behaviour S50); the numbers are given to on_finished."""
    task = NewTask(
        "on_finished",
        project.name,
        "data:,on_finished",
        schedule=_FORCED,
        fetch={"save": {name: getattr(counts, name) for name in ("crawl", "success", "failed", "bad")}},
        process={"callback": "on_finished"},
    )
    key = f"finished:{project.name}:{project.head.generation}:{counts.crawl}"
    return _row(key, ControlKind.FINISHED, project, task)


def message(report: Report, index: int, sent: Message, target: ProjectRun) -> Control:
    """A message to a project (behaviour H61); its id is the sender's run and its place in it. A sender that is deleted and made again
    has the same runs, so its generation is part of that."""
    task = NewTask(
        md5(sent.url.encode(errors="surrogatepass")).hexdigest(),
        sent.project,
        sent.url,
        fetch={"save": [report.project, sent.message]},
        process={"callback": "_on_message"},
    )
    sender = f"{report.project}:{report.generation}:{report.control or report.taskid}:{report.run}:{index}"
    return _row(f"message:{sender}", ControlKind.MESSAGE, target, task)


def _row(id_: str, kind: ControlKind, project: ProjectRun, task: NewTask) -> Control:
    return Control(id=id_, project=project.name, kind=kind, generation=project.head.generation, task=task)


def page(row: Control, project: ProjectRun, track: dict[str, Any], suspect: bool = False) -> Page:
    """A control row as a processor gets it: with a response that needed no fetch, and what it left behind the last time."""
    save: Any = row.task.fetch.get("save")
    task = Dispatch(
        taskid=row.task.taskid,
        project=row.project,
        url=row.task.url,
        control=row.id,
        run=CONTROL_RUN,
        generation=project.head.generation,
        schedule=row.task.schedule,
        fetch=row.task.fetch,
        process=row.task.process,
        track=track,
        group=project.head.group,
        project_md5sum=project.md5,
        project_updatetime=project.head.updatetime,
        debug=project.head.status == "DEBUG",
        suspect=suspect,
    )
    return Page(task, FetchResponse(status_code=200, url=row.task.url, orig_url=row.task.url, save=save))
