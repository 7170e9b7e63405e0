"""`check-config`: connects to everything that the settings name and says what is there and what is wrong. It makes and changes
nothing."""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial

import click

from pyspider_lite import assembly, bootstrap, exit_codes, settings
from pyspider_lite.cli import local_checks, options
from pyspider_lite.cli.at_once import at_once
from pyspider_lite.cli.cluster_view import View, state
from pyspider_lite.cli.local_checks import Finding
from pyspider_lite.cli.terminal import say
from pyspider_lite.errors import ConfigError, CoordinationError
from pyspider_lite.log import mask_url
from pyspider_lite.message_queue.broker_url import PERCENT_HINT
from pyspider_lite.settings import Settings

#: seconds for everything
PATIENCE = 25.0


@click.command("check-config")
@click.pass_context
def check_config_command(ctx: click.Context) -> int:
    """Connect to everything that the settings name, and show what is found.

    Leaves nothing behind, and takes 30 seconds at most. Ends with 0 when all is well, with 2 when there are problems, one line
    each.
    """
    _, findings = examine(ctx)
    for finding in findings:
        for line in _shown(finding):
            say(line)
    problems = [f"{finding.title}: {problem}" for finding in findings for problem in finding.problems]
    say("")
    for problem in problems:
        say(f"problem: {problem}")
    for finding in findings:
        for hint in finding.hints:
            say(f"hint: {finding.title}: {hint}")
    if not problems:
        say("no problems found")
    return exit_codes.BAD_CONFIG if problems else exit_codes.DONE


def examine(ctx: click.Context) -> tuple[Settings, list[Finding]]:
    """The settings of this command line, and what is found where they point to; `doctor` begins with it, too."""
    wrong: list[str] = []
    loaded = options.checked_settings(ctx, wrong)
    chosen = loaded.settings
    if chosen.add_sys_path and os.getcwd() not in sys.path:
        sys.path.append(os.getcwd())  # behaviour C5
    notes = [warning for warning in loaded.warnings if warning not in loaded.mistakes]
    first = Finding("settings", notes, [*wrong, *loaded.mistakes], _hints(chosen), unusable=bool(wrong))
    return chosen, [first, *_ask_all(chosen)]


def _hints(chosen: Settings) -> list[str]:
    """Some parts in a place of one machine, others where several meet."""
    kinds = ("taskdb", "projectdb", "resultdb")
    local = [kind for kind in kinds if settings.sqlite_file(getattr(chosen, kind)) is not None]
    if chosen.message_queue and local:
        return [
            f"{' and '.join(local)} in files: each machine has its own; for several machines name a database server"
        ]
    if not chosen.message_queue and len(local) < len(kinds):
        return [
            "message-queue is not set: the queues are built in, for one machine; for several machines name a broker"
        ]
    return []


def _shown(finding: Finding) -> Iterator[str]:
    if finding.lines:
        yield finding.title
        for line in finding.lines:
            yield f"    {line}"


def _ask_all(chosen: Settings) -> list[Finding]:
    questions: dict[str, Callable[[], Finding]] = {
        **{kind: partial(_database, chosen, kind) for kind in ("taskdb", "projectdb", "resultdb")},
        "message-queue": partial(_broker, chosen),
        "cluster": partial(_cluster, chosen),
        "coordination": partial(_coordination, chosen),
        "network": partial(local_checks.network, chosen),
        "files": partial(local_checks.files, chosen),
        "classes": partial(local_checks.classes, chosen),
        "versions": local_checks.versions,
    }
    answers = at_once(list(questions.values()), PATIENCE)
    return [
        _failed(chosen, title, answer) if isinstance(answer, Exception) else answer
        for title, answer in zip(questions, answers, strict=True)
    ]


def _failed(chosen: Settings, title: str, error: Exception) -> Finding:
    if title == "cluster":
        return Finding(title)  # said of the taskdb
    url = _url(chosen, title)
    text = exit_codes.sentence(error)
    shown = mask_url(url, alone=True)
    if shown and shown not in text:
        text = f"{shown}: {text}"
    hint = encoding_hint(url, title)
    problem = f"{text}; {hint}" if hint and PERCENT_HINT not in text else text
    return Finding(title, problems=[problem], unusable=isinstance(error, ConfigError))


def _url(chosen: Settings, title: str) -> str:
    return chosen.queue_url if title == "message-queue" else str(getattr(chosen, title, ""))


def encoding_hint(url: str, kind: str) -> str:
    """What to say of a URL whose password cuts it in the wrong place, "" if it is whole. MySQL's own form takes passwords as they
    are (behaviour D4); of several brokers the first that is not whole counts."""
    scheme, _, rest = url.partition("://")
    literal = scheme in (f"mysql+{kind}", f"mariadb+{kind}")
    for server in [rest] if kind != "message-queue" else rest.split(";"):
        login, _, _ = server.removeprefix(f"{scheme}://").rpartition("@")
        password = login.partition(":")[2]
        if literal and "%" in password:
            return f"in {scheme}:// a password is taken as it is: do not write % and two digits for its characters"
        # SQLAlchemy ends a password at the first @, urllib the login at the first of the others
        if not literal and set("/?#" if kind == "message-queue" else "@") & set(password):
            return f"its password is not encoded: {PERCENT_HINT}"
    return ""


# --- questions ----------------------------------------------------------------------------------------------------------


def _database(chosen: Settings, kind: str) -> Finding:
    from pyspider_lite.database import share_tables
    from pyspider_lite.database.engine import describe
    from pyspider_lite.database.url import parse

    url = getattr(chosen, kind)
    if url.startswith("local+"):
        assembly.connect_projectdb(chosen)
        return Finding(kind, [f"{url}: scripts in files"])
    prefixed = kind != "projectdb" and share_tables(chosen.taskdb, chosen.resultdb)
    target = parse(url, kind, prefixed=prefixed)
    description = describe(target)
    return Finding(kind, [target.shown, *description.found], description.problems)


def _broker(chosen: Settings) -> Finding:
    from pyspider_lite.message_queue.description import describe

    bootstrap.check_queue(chosen, served=True)
    if not chosen.message_queue and not os.path.exists(settings.queue_socket(chosen.data_path)):
        return Finding("message-queue", ["not set: `all` has it built in, for one machine; `all` does not run here"])
    return Finding("message-queue", describe(chosen.queue_url, chosen.queue_prefix))


def _coordination(chosen: Settings) -> Finding:
    from pyspider_lite.scheduler import election

    if not chosen.coordination:
        return Finding("coordination")
    try:
        address = election.parse(chosen.coordination)
        return Finding("coordination", [address.shown, election.describe(address)])
    except (ConfigError, CoordinationError) as error:
        return Finding("coordination", problems=[str(error).removeprefix("coordination: ")])


def _cluster(chosen: Settings) -> Finding:
    from pyspider_lite.database import share_tables
    from pyspider_lite.database.url import parse
    from pyspider_lite.database.worker_table import peek

    target = parse(chosen.taskdb, "taskdb", prefixed=share_tables(chosen.taskdb, chosen.resultdb))
    seen = peek(target)
    if seen is None:
        return Finding("cluster", ["no scheduler has been here yet"])
    view = View(now=seen.now, leader=seen.leader, workers=seen.workers, config_hash=chosen.digest)
    lines = [f"{seen.leader.holder} leads" if seen.leader is not None and view.leads else "no scheduler leads"]
    live = [row for row in view.sorted() if view.alive(row)]
    lines += [f"{row.beat.role} {row.beat.worker}: {state(view, row)}" for row in live[:100]]
    others = [f"{row.beat.role} {row.beat.worker}" for row in live if row.beat.config_hash != chosen.digest]
    hints = (
        [
            f"{', '.join(others[:5])}{' and more' if others[5:] else ''}: databases, broker or queue-prefix are written in another way "
            "than here: if they are others, two clusters share one broker, and need a queue-prefix each"
        ]
        if others
        else []
    )
    return Finding("cluster", lines, hints=hints)
