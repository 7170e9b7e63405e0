"""`doctor`: what is wrong with a cluster, what to do about it, and `--repair` for what is safe.

Begins with what `check-config` finds, then compares tables, queues, workers and the scheduler with each other. Two looks: what is only
there in one of them is the crawl going on.
"""

import time

import click

from pyspider_lite import exit_codes
from pyspider_lite.cli import check_config, cluster_checks, project_checks
from pyspider_lite.cli.examination import Examiner
from pyspider_lite.cli.picture import Found, Picture
from pyspider_lite.cli.remedies import Remedies, repair
from pyspider_lite.cli.terminal import say
from pyspider_lite.errors import PyspiderLiteError
from pyspider_lite.settings import Settings

#: seconds between the two looks: a worker is heard each 2 s, a project looked at each second
BETWEEN = 3.0


@click.command("doctor")
@click.option("--repair", "mend", is_flag=True, help="Mend what can be mended safely, a line for each thing done.")
@click.option("--full", is_flag=True, help="Count all rows and look at all projects, however many there are.")
@click.pass_context
def doctor_command(ctx: click.Context, mend: bool, full: bool) -> int:
    """Find out what is wrong: settings, servers, workers, clocks, versions, queues, counts, tasks nobody runs, projects without info.

    Changes nothing without --repair, and may be run at any time, with or without a scheduler. Ends with 0 when nothing is wrong or
    everything was mended, with 1 when something is left to do, one line each, and with 2 when it is in the configuration that no daemon
    could start with it.
    """
    chosen, findings = check_config.examine(ctx)
    found = [Found(finding.title, "", problem) for finding in findings for problem in finding.problems]
    broker = not any(one.problems for one in findings if one.title == "message-queue")
    examiner = Examiner(chosen, full=full, broker=broker)
    away = next((one.title for one in findings if one.title in _DATABASES and one.problems), "")
    picture, notes = None, [f"not checked: projects, tasks and workers, because of the {away}"]
    if not away:
        try:
            picture, more = _look_twice(examiner)
            found += more
            notes = picture.notes if picture is not None else [_NEVER_HERE]
        except PyspiderLiteError as error:
            found.append(Found("database", "", str(error)))
            notes = ["not checked: what is behind it"]
    _show(found, [f"{one.title}: {hint}" for one in findings for hint in one.hints], notes)
    left = len(found)
    if mend and picture is not None:
        left -= _mend(chosen, examiner, picture, found)
    if any(one.unusable for one in findings):
        return exit_codes.BAD_CONFIG
    return exit_codes.UNWELL if left else exit_codes.DONE


_DATABASES = ("taskdb", "projectdb", "resultdb")
_NEVER_HERE = "not checked: projects, tasks and workers: nothing was here yet"


def _show(found: list[Found], hints: list[str], notes: list[str]) -> None:
    for one in found:
        say(f"problem: {one.check}: {one.text}")
    for hint in hints:
        say(f"hint: {hint}")
    for note in dict.fromkeys(notes):
        say(note)
    if not found:
        say("nothing wrong")


def _look_twice(examiner: Examiner) -> tuple[Picture | None, list[Found]]:
    first = examiner.look()
    if first is None:
        return None, []
    suspected = {(one.check, one.subject) for one in _judge(first)}
    if not suspected:
        return first, []
    time.sleep(BETWEEN)
    projects = {subject.partition(" ")[0] for _, subject in suspected}
    second = examiner.look(projects if "more" not in projects else None)
    if second is None:
        return None, []
    second.notes = first.notes
    second.strangers = {
        name: [pair for pair in pairs if pair in first.strangers.get(name, ())]
        for name, pairs in second.strangers.items()
    }
    return second, [one for one in _judge(second) if (one.check, one.subject) in suspected]


def _judge(picture: Picture) -> list[Found]:
    return [*cluster_checks.check(picture), *project_checks.check(picture)]


def _mend(settings: Settings, examiner: Examiner, picture: Picture, found: list[Found]) -> int:
    """Mend what can be mended; how many are."""
    mended = 0
    for one, said, done in repair(Remedies(settings, examiner, picture), found):
        say(f"{'repaired' if done else 'not repaired'}: {one.check}: {said}")
        mended += done
    return mended
