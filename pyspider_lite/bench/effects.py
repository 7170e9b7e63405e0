"""On what each option of `bench` has an effect. One that has none on what is asked for is refused: who gives `--kill` where nothing is killed
would take for tested what was not."""

from collections.abc import Mapping, Sequence
from typing import Any

from pyspider_lite.bench.roles.subjects import ROLES
from pyspider_lite.bench.suite import ALL, Plan

# what may be asked for, in the words of messages
_CRAWL, _MANY = "a crawl", "--projects"
_GENERATED, _BY_ALL = "a crawl of the generated site", "a crawl by `all`"
_ROLES = tuple(f"--role {role}" for role in ROLES)
_PARTS = ("--taskdb-bench", "--message-queue-bench")
_ON_STACKS = tuple(f"--measure {name}" for name in ("latency", "rates", "idle", "fetchers", "submit"))
_ROWS, _PROJECTS = "--measure rows", "--measure projects"
_MEASURES = (*_ON_STACKS, _ROWS, _PROJECTS)
_TARGETS, _PEER_FILE = "--all-targets", "--peer-file"
_ALL_BUT_PEER_FILE = (_CRAWL, _MANY, *_ROLES, *_PARTS, *_MEASURES, _TARGETS)
#: option -> with what it has an effect
EFFECTS: Mapping[str, Sequence[str]] = {
    "total": (_GENERATED, *_ROLES, *_PARTS),
    "show": (_GENERATED, *_ROLES),
    "page_size": (_GENERATED, _MANY, *_ROLES),
    "site": (_CRAWL,),
    "fetcher_num": (_CRAWL,),
    "processor_num": (_CRAWL, _MANY),
    "result_worker_num": (_CRAWL,),
    "parse": (_CRAWL, _MANY),
    "cluster": (_CRAWL, *_ON_STACKS),
    "stack": (_CRAWL, *_ON_STACKS),
    "only": ("--cluster", "--stack"),
    "peer": (_CRAWL,),
    "floor": (_CRAWL,),
    "rounds": (_CRAWL, *_ROLES, *_PARTS, *_MEASURES),
    "kill": (_BY_ALL,),
    "projects": (_MANY,),
    "verbose": (_CRAWL, _MANY),
    "role": _ROLES,
    "database": ("--role scheduler", _ROWS),
    "measure": _MEASURES,
    "seconds": (*(name for name in _ON_STACKS if name != "--measure submit"), _PROJECTS),
    "rows": (_ROWS, _PROJECTS),
    "urls": ("--measure submit",),
    "taskdb_bench": _PARTS,
    "message_queue_bench": _PARTS,
    "all_bench": (_CRAWL, _MANY),
    "all_targets": (_TARGETS,),
    "quick": (_TARGETS,),
    "peer_file": (_PEER_FILE,),
    "json": _ALL_BUT_PEER_FILE,
    "keep": _ALL_BUT_PEER_FILE,
}


def asked_for(options: Mapping[str, Any], plans: Sequence[Plan]) -> set[str]:
    """What the options of a command line, by name, have `bench` do, and the suites on which; in the words of `EFFECTS`. Pure."""
    if options["peer_file"] is not None:
        return {_PEER_FILE}
    if options["all_targets"]:
        return {_TARGETS}
    flags = ("taskdb_bench", "message_queue_bench")
    asked = {_flag(name) for name in flags if options[name]}
    asked |= {f"--{kind} {name}" for kind in ("role", "measure") for name in options[kind]}
    if options["all_bench"] or not asked:
        asked |= _crawls(options, plans)
    return asked | {_flag(name) for name in ("cluster", "stack") if options[name]}


def _crawls(options: Mapping[str, Any], plans: Sequence[Plan]) -> set[str]:
    if options["projects"]:
        return {_MANY}
    found = {_CRAWL} if options["site"] else {_CRAWL, _GENERATED}
    return found | {_BY_ALL} if ALL in plans else found


def without(given: Sequence[str], asked: set[str]) -> str:
    """A sentence about the first of the given options that has no effect on what is asked for; "" if all have one. Pure."""
    for name in given:
        if asked.isdisjoint(EFFECTS[name]):
            return f"{_flag(name)} has no effect here; it has one with {', '.join(EFFECTS[name])}."
    return ""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"
