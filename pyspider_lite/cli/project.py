"""`project`: put scripts into the projectdb, and start, stop, change and delete projects."""

import difflib
import json
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from pyspider_lite import bootstrap
from pyspider_lite.cli import jobs_view, options, project_view
from pyspider_lite.cli.project_view import shown
from pyspider_lite.cli.script import read_script, verify_script
from pyspider_lite.cli.terminal import say
from pyspider_lite.cli.unloadable import unloadable
from pyspider_lite.configuration import parse_rate
from pyspider_lite.database.base import ProjectDB, TaskDB
from pyspider_lite.database.names import verify_project_name
from pyspider_lite.errors import ConfigError, RefusedToStart, ScriptError
from pyspider_lite.models.control import ControlKind
from pyspider_lite.models.project import ACTIVE_PROJECT, Project, ProjectState, ProjectStatus
from pyspider_lite.scheduler import explanation

#: seconds that `delete` waits for the scheduler
DELETE_PATIENCE = 15.0
#: messages that are counted
_MOST_MESSAGES = 10_000
_STATUS = click.Choice([str(status) for status in ProjectStatus], case_sensitive=False)


@click.group("project")
def project_command() -> None:
    """Projects: scripts and what is done with them."""


@project_command.command()
@click.argument("file")
@click.option("--name", help="Name of the project; not given: the file's name without its ending.")
@click.option("--rate", metavar="NUMBER", help="Tasks a second, or 'unlimited'.  [default: 1]")
@click.option(
    "--burst", metavar="NUMBER", help="Tasks that may go out at once after a pause, or 'unlimited'.  [default: 3]"
)
@click.option(
    "--group", help="Group of the project; projects of the group 'delete' are deleted when stopped for a day."
)
@click.option("--status", type=_STATUS, help="Status of the project.  [default: TODO]")
@click.pass_context
def push(
    ctx: click.Context,
    file: str,
    name: str | None,
    rate: str | None,
    burst: str | None,
    group: str | None,
    status: str | None,
) -> None:
    """Store the script FILE as a project, new or changed. What is not given stays as it was."""
    settings = options.settings_of(ctx, quiet=True)
    script = read_script(file)
    name = name if name is not None else os.path.splitext(os.path.basename(file))[0]
    if not verify_project_name(name):
        raise ConfigError(
            f"{name!r} cannot be a project's name: use --name with 1 to 64 of A-Z a-z 0-9 _, and no database's name"
        )
    changes = _changes(rate, burst, group, status)
    with bootstrap.open_projectdb(settings, create=True) as projectdb:
        if (stored := projectdb.get(name)) is not None:
            with bootstrap.open_taskdb(settings, create=True) as taskdb:
                _refuse_if_doomed(taskdb, stored)
        known = projectdb.update(name, script=script, **changes)
        if not known:
            projectdb.insert(Project(name=name, script=script, **changes))
        project = _project(projectdb, name)
    say(f"{name} {'changed' if known else 'added'}, status {project.status}")
    if project.status not in ACTIVE_PROJECT:
        say(f"start it with: pyspider_lite project run {name}")
    _warn(project)


@project_command.command("list")
@click.option("--format", "form", type=click.Choice(["table", "jsonl"]), default="table", show_default=True)
@click.pass_context
def list_projects(ctx: click.Context, form: str) -> None:
    """List all projects with their numbers of tasks and dead letters."""
    with _databases(ctx) as (projectdb, taskdb):
        heads, states = sorted(projectdb.heads(), key=lambda head: head.name), taskdb.project_states()
        letters = Counter[str]()
        for found in taskdb.count_dead_letters():
            letters[found.project] += found.count
        broken = unloadable(projectdb, {name: state.info for name, state in states.items()})
    rows = project_view.as_rows(heads, states, letters, broken)
    if form == "jsonl":
        for row in rows:
            say(json.dumps(row, ensure_ascii=False))
    else:
        for line in project_view.as_table(rows):
            say(line)


@project_command.command()
@click.argument("name")
@click.option("--format", "form", type=click.Choice(["text", "jsonl"]), default="text", show_default=True)
@click.pass_context
def jobs(ctx: click.Context, name: str, form: str) -> None:
    """List the @every methods of a project: next run, last run and how it ended, missed ones and why."""
    with _databases(ctx) as (projectdb, taskdb):
        project, states, now = _project(projectdb, name), taskdb.project_states(), taskdb.time()
    records = jobs_view.as_records(project, states.get(name) or ProjectState(project=name), now)
    for line in jobs_view.as_lines(records) if form == "text" else map(json.dumps, records):
        say(line)
    if not records and form == "text":
        say(f"no jobs are known of {name}; a scheduler asks its script for them when the project runs")


@project_command.command("show")
@click.argument("name")
@click.pass_context
def show_project(ctx: click.Context, name: str) -> None:
    """Say what a project does now, and why not if it does nothing."""
    with _databases(ctx) as (projectdb, taskdb):
        project = _project(projectdb, name)
        state, now = taskdb.project_states().get(name) or ProjectState(project=name), taskdb.time()
        heads = taskdb.project_control_heads(name, project.generation, ControlKind.MESSAGE, 0, _MOST_MESSAGES + 1)
        doomed, broken = _is_doomed(taskdb, project), unloadable(projectdb, {name: state.info})
    say(f"{name} is {project.status}, rate {shown(project.rate)}, burst {shown(project.burst)}")
    say(
        f"tasks: {state.active} active ({state.periodic} of them again and again), {state.success} success, "
        f"{state.failed} failed, {state.bad} bad"
    )
    if heads:
        say(
            f"messages for it: {len(heads) if len(heads) <= _MOST_MESSAGES else f'more than {_MOST_MESSAGES}'} wait or are under way"
        )
    if state.armed:
        say(f"crawl {state.crawl + 1} goes on")
    elif state.crawl:
        say(f"crawl {state.crawl} is finished")
    if name in broken:
        say(
            f"its script could not be loaded: {broken[name]}; mend it, push it (it is asked anew when it changes) and run it"
        )
    if doomed:
        say("it is to be deleted, as soon as a scheduler runs")
    elif project.status in ACTIVE_PROJECT and (pause := explanation.of_pause(name, state, now)):
        say(pause)


@project_command.command("set")
@click.argument("name")
@click.option("--rate", metavar="NUMBER", help="Tasks a second, or 'unlimited'.")
@click.option("--burst", metavar="NUMBER", help="Tasks that may go out at once after a pause, or 'unlimited'.")
@click.option("--group", help="Group of the project.")
@click.option("--status", type=_STATUS, help="Status of the project.")
@click.pass_context
def set_project(
    ctx: click.Context, name: str, rate: str | None, burst: str | None, group: str | None, status: str | None
) -> None:
    """Change a project."""
    settings = options.settings_of(ctx, quiet=True)
    changes = _changes(rate, burst, group, status)
    if not changes:
        raise ConfigError("nothing to change: give --rate, --burst, --group or --status")
    with bootstrap.open_projectdb(settings) as projectdb:
        _project(projectdb, name)
        projectdb.update(name, **changes)
        project = _project(projectdb, name)
    say(f"{name}: status {project.status}, rate {shown(project.rate)}, burst {shown(project.burst)}")
    _warn(project)


@project_command.command()
@click.argument("name")
@click.pass_context
def run(ctx: click.Context, name: str) -> None:
    """Make a project active (RUNNING unless it is in DEBUG) and call its on_start."""
    with _databases(ctx) as (projectdb, taskdb):
        project = _project(projectdb, name)
        _refuse_if_doomed(taskdb, project)
        state = taskdb.project_states().get(name)
        if project.status not in ACTIVE_PROJECT:
            projectdb.update(name, status=str(ProjectStatus.RUNNING))
            project = _project(projectdb, name)
        elif state is not None and state.paused_until:
            projectdb.update(name, status=str(project.status))  # lifts the pause
        bootstrap.enter_on_start(taskdb, project)
    say(f"{name} is {project.status}; on_start was entered")
    _warn(project)


@project_command.command()
@click.argument("name")
@click.pass_context
def stop(ctx: click.Context, name: str) -> None:
    """Give out no more work of a project; what is under way is finished."""
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_projectdb(settings) as projectdb:
        _project(projectdb, name)
        projectdb.update(name, status=str(ProjectStatus.STOP))
    say(f"{name} is stopped")


@project_command.command()
@click.argument("name")
@click.pass_context
def resume(ctx: click.Context, name: str) -> None:
    """Lift the pause of a project whose last tasks all failed: its tasks are tried again at once."""
    with _databases(ctx) as (projectdb, taskdb):
        project = _project(projectdb, name)
        state = taskdb.project_states().get(name)
        if project.status not in ACTIVE_PROJECT:
            raise ConfigError(
                f"{name} is {project.status}, not paused: pyspider_lite project set {name} --status RUNNING has it go on "
                "(project run calls its on_start as well)"
            )
        if state is None or not state.paused_until:
            say(f"{name} does not pause")
            return
        # the scheduler lifts the pause of every project that a user changes
        projectdb.update(name, status=str(project.status))
    say(f"{name} goes on")


@project_command.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.pass_context
def delete(ctx: click.Context, name: str, yes: bool) -> None:
    """Delete a project with its tasks and results. The scheduler does it, so one has to be running."""
    with _databases(ctx) as (projectdb, taskdb):
        project = _project(projectdb, name)
        if not yes and not sys.stdin.isatty():
            raise ConfigError("delete asks before it deletes, and there is no terminal to ask on: add --yes")
        if not yes:
            click.confirm(f"Delete {name} with all its tasks and results?", abort=True)
        projectdb.update(name, status=str(ProjectStatus.STOP))
        bootstrap.enter_delete(taskdb, project)
        say(f"waiting for the scheduler to delete {name} ...")
        if not _await_deletion(projectdb, project):
            raise RefusedToStart(
                f"{name} is stopped and its deletion is noted, but not done after {DELETE_PATIENCE:.0f} s: is a scheduler running?"
            )
    say(f"{name} is deleted")


@contextmanager
def _databases(ctx: click.Context) -> Iterator[tuple[ProjectDB, TaskDB]]:
    """The projectdb, and the taskdb, which need not be there yet."""
    settings = options.settings_of(ctx, quiet=True)
    with bootstrap.open_projectdb(settings) as projectdb, bootstrap.open_taskdb(settings, create=True) as taskdb:
        yield projectdb, taskdb


def _await_deletion(projectdb: ProjectDB, project: Project) -> bool:
    deadline = time.monotonic() + DELETE_PATIENCE
    while time.monotonic() < deadline:
        found = projectdb.get(project.name)
        if found is None or found.generation != project.generation:
            return True
        time.sleep(0.2)
    return False


def _is_doomed(taskdb: TaskDB, project: Project) -> bool:
    """Its deletion is noted and not done yet."""
    key = bootstrap.delete_key(project)
    with taskdb.begin(None) as tx:
        return key in tx.existing_controls([key])


def _refuse_if_doomed(taskdb: TaskDB, project: Project) -> None:
    if _is_doomed(taskdb, project):
        raise RefusedToStart(
            f"{project.name} is to be deleted, which a scheduler does: start one, and try again when it has done so"
        )


def _changes(rate: str | None, burst: str | None, group: str | None, status: str | None) -> dict[str, Any]:
    changes: dict[str, Any] = {}
    if rate is not None:
        changes["rate"] = parse_rate(rate, "--rate")
    if burst is not None:
        changes["burst"] = parse_rate(burst, "--burst")
    if group is not None:
        changes["group"] = group or None
    if status is not None:
        changes["status"] = status
    return changes


def _project(projectdb: ProjectDB, name: str) -> Project:
    project = projectdb.get(name)
    if project is None:
        near = difflib.get_close_matches(name, [head.name for head in projectdb.heads()], 1)
        raise ConfigError(f"there is no project {name}" + (f"; did you mean {near[0]}?" if near else ""))
    return project


def _warn(project: Project) -> None:
    """Say what will keep it from being crawled, as far as it can be told from its row."""
    try:
        verify_script(project.script, project.name)
    except ScriptError as error:
        say(f"the script is no Python, so it cannot be loaded: {error}", err=True)
    for name, value in (("rate", project.rate), ("burst", project.burst)):
        if value == 0:
            say(f"{name} is 0: nothing of {project.name} will be selected", err=True)
