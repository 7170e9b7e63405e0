"""Control work: what each kind of control row looks like (design, section 4), and as what it is given out. Pure."""

from hashlib import md5
from typing import Any

from pyspider_lite import codec, error_kinds
from pyspider_lite import cron as clock
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.models.control import Control, ControlKind
from pyspider_lite.models.names import CONTROL_RUN
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import CronJob, ProjectState
from pyspider_lite.models.report import Message, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.scheduler.project_state import ProjectRun

#: characters of an answer that are kept at most: each commit reads and writes them again
MAX_ANSWER = 8_000
#: characters of the reason why a script could not be asked
_REASON = 300
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
    return _row(info_id(project.name, project.head.generation, project.md5), ControlKind.INFO, project, task)


def info_id(name: str, generation: str, md5sum: str) -> str:
    """The id of `info` for one version of a script."""
    return f"info:{name}:{generation}:{md5sum}"


def keep_answer(row: Control, report: Report) -> str:
    """What the answer to `info` becomes in the project's state row; "": it is not kept. Of a script that could not be asked it says why,
    for `kept_failure`: no leader takes that for an answer, since what is wrong may be mended without a change of the script."""
    if report.ok and report.info is None:
        return ""
    found = {"answer": report.info} if report.ok else {"failed": _reason(report)}
    try:
        text = codec.to_json({"of": row.id, **found})
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


def kept_failure(kept: str) -> tuple[str, str]:
    """The id of the row by which a script could not be asked, and why in one line, if `keep_answer` kept that; else two times ""."""
    try:
        found = codec.from_json(kept)
        return str(found["of"]), str(found["failed"])
    except (ValueError, LookupError, TypeError):
        return "", ""


def _reason(report: Report) -> str:
    """The exception's class and its last line."""
    process = report.track.get("process")
    process = process if isinstance(process, dict) else {}
    lines = str(process.get("exception") or "").strip().splitlines()
    words = [error_kinds.raised_as(process), lines[-1][:_REASON] if lines else ""]
    return ": ".join(word for word in words if word) or "no reason known"


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


def sent(task: NewTask, token: str, target: ProjectRun) -> Control:
    """A message from outside (`send_message`, behaviour C98); ``token`` tells it from all others."""
    return _row(f"message:{token}", ControlKind.MESSAGE, target, task)


def _row(id_: str, kind: ControlKind, project: ProjectRun, task: NewTask) -> Control:
    return Control(id=id_, project=project.name, kind=kind, generation=project.head.generation, task=task)


def page(row: Control, project: ProjectRun, track: dict[str, Any], epoch: int, suspect: bool = False) -> Page:
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
        epoch=epoch,
    )
    return Page(task, FetchResponse(status_code=200, url=row.task.url, orig_url=row.task.url, save=save))
