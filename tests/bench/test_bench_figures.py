"""What the benchmark makes of its runs: medians, ratios within a round, the table of targets, and when a crawl is not complete."""

import json
import math
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from pyspider_lite.bench import command, crawl, crawls, peer_file, recovery, rounds, site, soak, targets
from pyspider_lite.bench.chaos import stack as chaos_stack
from pyspider_lite.bench.measures import fetchers, rates
from pyspider_lite.bench.rounds import Spread, Subject
from pyspider_lite.bench.suite import STACKS, SuiteEnded
from pyspider_lite.bench.targets import Row

ROOT = Path(__file__).parent.parent.parent


def play(*figures: dict[str, Any], names: str = "ab") -> list[dict[str, Any]]:
    """Each subject gives its figures in turn."""
    left = list(figures)
    return rounds.play(
        [Subject(name, lambda number: left.pop(0)) for name in names], len(left) // len(names), lambda run: None
    )


def test_subjects_are_run_in_turn() -> None:
    seen: list[str] = []
    subjects = [Subject(name, lambda number, name=name: seen.append(f"{name}{number}") or {}) for name in "ab"]
    runs = rounds.play(subjects, 2, lambda run: None)
    assert seen == ["a1", "b1", "a2", "b2"]
    assert [(run["name"], run["round"]) for run in runs] == [("a", 1), ("b", 1), ("a", 2), ("b", 2)]


def test_ratios_are_made_within_a_round() -> None:
    runs = play(*({"pages_per_s": value} for value in (100.0, 10.0, 60.0, 20.0, 90.0, 15.0)))
    assert rounds.ratio(runs, "a", "b") == Spread(3.0, 6.0, 10.0)


def test_a_peer_without_a_page_gives_no_ratio_of_that_round() -> None:
    runs = play(*({"pages_per_s": value} for value in (100.0, 0.0, 60.0, 20.0)))
    assert rounds.ratio(runs, "a", "b") == Spread(3.0, 3.0, 3.0)


def test_a_round_in_which_one_has_failed_gives_no_ratio() -> None:
    assert rounds.ratio(play({"problems": "it ended"}, {"pages_per_s": 20.0}), "a", "b") is None
    assert rounds.ratio(play({"pages_per_s": 20.0}, {"pages_per_s": 0.0}), "a", "b") is None


def test_a_suite_that_ends_by_itself_is_a_problem_of_its_run_only() -> None:
    def end(number: int) -> dict[str, Any]:
        raise SuiteEnded("`all` ended")

    runs = rounds.play([Subject("a", end), Subject("b", lambda number: {"problems": ""})], 1, lambda run: None)
    assert [(run["name"], run["round"], run["problems"]) for run in runs] == [("a", 1, "`all` ended"), ("b", 1, "")]


@pytest.mark.parametrize(("requests", "said"), [(None, ""), (9, ""), (10, ""), (13, "3 fetched twice")])
def test_more_requests_than_pages_are_a_problem(requests: int | None, said: str) -> None:
    assert crawl.fetched_twice(requests, 10) == said


def test_the_summary_has_the_numbers_that_all_runs_have() -> None:
    first = {
        "pages_per_s": 10,
        "roles": {"fetcher": 1.0, "script": 2.0},
        "problems": "",
        "processes": {"x": {"rss": 1}},
    }
    second = {"pages_per_s": 30, "roles": {"fetcher": 3.0}, "problems": "", "curve": [(1.0, 2, 3.0)], "killed": 1}
    assert rounds.summary(play(first, second, names="a")) == {
        "a": {"pages_per_s": Spread(10, 20, 30), "roles.fetcher": Spread(1.0, 2.0, 3.0)}
    }


def test_numbers_of_one_run_are_shown_without_their_spread() -> None:
    assert str(Spread(2.0, 2.0, 2.0)) == "2"
    assert str(Spread(1.0, 2.0, 3.5)) == "2 (1 to 3.5)"


@pytest.mark.parametrize(
    ("rows", "problems"),
    [
        ([(0, "0"), (1, "1"), (2, "2")], ""),
        ([(0, "0"), (1, "1")], "1 missing"),
        ([(0, "0"), (1, "1"), (1, "1"), (2, "2")], "1 twice"),
        ([(0, "0"), (1, "x"), (2, "2")], "1 wrong"),
        ([(0, "0"), (1, "1"), (2, "2"), (7, "7")], "1 strange"),
    ],
)
def test_a_crawl_is_complete_when_each_page_is_there_once_with_its_title(
    rows: list[tuple[int, str]], problems: str
) -> None:
    served = site.Site(3, 100)
    found = [(served.address(index), f"Page {name} of the bench") for index, name in rows]
    assert crawl.check(found, served) == problems


def test_all_pages_of_the_site_are_reachable() -> None:
    seen, todo = {0}, [0]
    while todo:
        new = set(site.links(todo.pop(), 500, 1)) - seen
        seen |= new
        todo += new
    assert seen == set(range(500))


@pytest.mark.parametrize(("size", "links"), [(5_000, 10), (60_000, 10), (5_000, 20)])
def test_a_page_has_its_size_and_its_links(size: int, links: int) -> None:
    pages = [site.page(index, 10_000, size, 1, links) for index in range(20)]
    assert all(size <= len(page) < size + 800 for page in pages)
    # a page may link to the same one twice by chance
    assert all(links - 2 <= page.count(b"<a ") <= links for page in pages)
    assert len(set(pages)) == len(pages)


def test_the_rate_is_that_after_the_burst() -> None:
    times = [0.0] * 5 + [10.0 * number for number in range(1, 8)]
    assert math.isclose(rates.per_second(times), 0.1)
    assert rates.per_second([0.0] * 5 + [10.0]) == 0.0


def test_the_rate_of_fetchers_is_that_in_the_middle_of_the_run() -> None:
    steady = [number / 50 for number in range(100)]
    assert math.isclose(fetchers.steady(steady), 50)
    late_end = [*steady[:95], *(time + 60 for time in steady[95:])]
    assert math.isclose(fetchers.steady(late_end), 50)
    assert fetchers.steady([1.0]) == 0.0


def test_the_table_says_what_was_met_missed_and_not_measured() -> None:
    rows = [
        Row("fast", "links", lambda made: made["a"], 12),
        Row("cheap", "links", lambda made: made["b"], None, 0.9),
        Row("gone", "links", lambda made: made["c"], 1),
        Row("not run", "doc", lambda made: made["a"], 8),
        Row("large", target="< 5 s"),
    ]
    _, _, *lines = targets.table(rows, {"links": {"a": 13.0, "b": 1.1}})
    assert [line.split(" | ")[1:4] for line in lines] == [
        ["at least 12", "13", "met"],
        ["at most 0.9", "1.1", "missed"],
        ["at least 1", "failed", ""],
        ["at least 8", "not measured", ""],
        ["< 5 s", "not measured", ""],
    ]


def test_every_row_of_the_targets_has_a_command_or_says_what_is_wanted() -> None:
    for row in targets.ROWS:
        assert row.command in targets.COMMANDS if row.command else row.target
        assert not row.command or (row.at_least is None) != (row.at_most is None)
    assert {row.command for row in targets.ROWS if row.command} == set(targets.COMMANDS)


def test_a_quick_look_at_the_targets_has_a_tenth_of_the_pages() -> None:
    once = ["--rounds", "1"]
    assert targets.shortened(("--peer", "scrapy"))[2:] == ["--total", "1000", *once]
    assert targets.shortened(("--total", "3000", "--role", "fetcher"))[4:] == ["--total", "300", *once]
    assert targets.shortened(("--measure", "rows", "--rows", "5000"))[4:] == ["--rows", "500", *once]
    assert targets.shortened(("--measure", "idle"))[2:] == [*once, "--seconds", "10"]


def test_another_benchmark_starts_us_by_these_files() -> None:
    alone, cluster = peer_file.files().values()
    assert alone["out"] == "sqlite:data/result.db" and alone["services"] == []
    assert [words[-1] for words in cluster["cmds"]] == [
        "scheduler",
        "fetcher",
        "processor",
        "processor",
        "result_worker",
    ]
    assert cluster["services"] == ["redis", "mariadb"] and cluster["env"]["AMQP_URL"].startswith("redis://")


@pytest.mark.parametrize(("problems", "code"), [("", 0), ("2 missing", 1)])
def test_what_is_not_complete_fails_whatever_its_speed(monkeypatch: Any, problems: str, code: int) -> None:
    run = {"name": "all", "round": 1, "pages_per_s": 9_999.0, "problems": problems}
    monkeypatch.setattr(crawls, "run", lambda *arguments: [run])
    done = CliRunner().invoke(command.bench_command, standalone_mode=False)
    assert done.return_value == code
    assert ("WRONG" in done.output) is bool(problems)


def test_stacks_are_spelled_the_same_everywhere() -> None:
    names = sorted(STACKS)
    assert names == sorted(chaos_stack.STACKS) == ["builtin-sqlite", "rabbitmq-postgresql", "redis-mariadb"]
    choices = {
        program: next(option.type for option in program.params if option.name in ("stack", "stacks")).choices
        for program in (command.bench_command, recovery.main, soak.main)
    }
    assert all(set(names) <= set(known) for known in choices.values())
    for page in (ROOT / "README.md", *(ROOT / "docs").glob("*.md")):
        assert not [name for name in names if name.replace("-", "+") in page.read_text("utf-8")], page.name


@pytest.mark.parametrize(
    ("name", "plans"),
    [
        ("redis-mariadb", ["all", "redis+mariadb"]),
        ("redis+mariadb", ["all", "redis+mariadb"]),
        ("builtin-sqlite", ["all"]),
    ],
)
def test_bench_takes_the_names_of_its_figures_for_stacks_too(
    name: str, plans: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(crawls, "run", lambda choices, *_: asked.append([plan.name for plan in choices.plans]) or [])
    CliRunner().invoke(command.bench_command, ["--stack", name], standalone_mode=False)
    assert asked == [plans]


def test_a_start_by_another_benchmark_stops_what_the_run_before_left_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(crawl.script("links", "http://127.0.0.1:1/"))
    for name in ("shop", "bench_0a0a0a0a"):
        peer_file._project("push", "mine.py", "--name", name, "--status", "RUNNING")
    peer_file.start("http://127.0.0.1:1/", "links")
    found = map(json.loads, peer_file._project("list", "--format", "jsonl").splitlines())
    states = {head["name"]: head["status"] for head in found}
    assert (states.pop("shop"), states.pop("bench_0a0a0a0a")) == ("RUNNING", "STOP")
    assert list(states.values()) == ["RUNNING"]
