"""The processor with its real child: what becomes of other pages beside a slow one, in a drain, and while the next queue is full."""

import time
from pathlib import Path

import pytest
from callback_scripts import OK, script

from pyspider_lite.flight_recorder import FlightRecorder
from pyspider_lite.models.batch import PageBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.worker import Beat, Claim, Release
from pyspider_lite.processor import aside
from pyspider_lite.processor.aside import SLOW


def until_told(folder: Path) -> str:
    """A script whose `cb` ends when the folder has a file of the page's name."""
    return script(f"""
        def cb(self, response):
            while not os.path.exists(os.path.join({str(folder)!r}, os.path.basename(response.url))):
                time.sleep(0.02)

        def quiet(self, response):
            pass
    """)


def tell(folder: Path, page) -> None:
    (folder / page.task.url.rpartition("/")[2]).touch()


def test_other_projects_go_on_beside_a_slow_page(rig, tmp_path):
    source = until_told(tmp_path)
    slow, same = rig.page(source), [rig.page(source, "quiet") for _ in range(3)]
    others = [rig.page(OK, project="q") for _ in range(3)]
    rig.put(slow, *same, *others)
    assert all(rig.report_of(page).ok for page in others)
    # another processor could take these now; here they come after the slow one
    rig.until(lambda: rig.handed_over(QueueName.TO_PROCESSOR))
    assert rig.handed_over(QueueName.TO_PROCESSOR)[0].runs == [page.task.key for page in same]
    rig.until(lambda: rig.said(Beat) and rig.said(Beat)[-1].running == slow.task.key)
    assert not any(report.project == "p" for report in rig.reports())
    tell(tmp_path, slow)
    assert all(rig.report_of(page).ok for page in [slow, *same])
    rig.until(lambda: not rig.processor._aside.lanes)


def test_suspects_come_last_alone_and_are_named_before_they_begin(rig, tmp_path):
    """A script may end us before the next beat: the beat that says which one ran is on its queue by then (demand UA39)."""
    source = until_told(tmp_path)
    slow, quick = rig.page(source), rig.page(OK, "quiet", project="q")
    suspects = [rig.page(source, project=name, suspect=True) for name in ("r", "p")]
    children = {rig.processor._lane.child.pid}
    rig.put(slow, quick)
    assert rig.report_of(quick).ok
    rig.until(lambda: rig.processor._aside.lanes)
    beside = rig.page(OK, "quiet", project="q")
    rig.put(*suspects, beside)
    rig.until(lambda: rig.processor._inbox.suspects)
    assert not any(beat.running in [page.task.key for page in suspects] for beat in rig.said(Beat))
    tell(tmp_path, slow)
    for page in suspects:
        rig.until(lambda page=page: rig.said(Beat)[-1].running == page.task.key)
        rig.until(lambda page=page: rig.processor._lane.page == page)
        # what ran before it cannot end us while it is named
        rig.until(lambda: rig.processor._lane.child.pid not in children)
        children.add(rig.processor._lane.child.pid)
        assert not rig.processor._aside.lanes
        assert [one.key for one in rig.reports()].count(page.task.key) == 0
        tell(tmp_path, page)
        assert rig.report_of(page).ok
    # and whoever comes after it is not mistaken for it
    assert rig.report_of(beside).ok
    assert rig.run(rig.page(OK, "quiet", project="q")).ok
    beats = [item for item in rig.status if isinstance(item, Beat)]
    named = [beat.running for beat in beats]
    assert None in named[named.index(suspects[1].task.key) :]


def test_a_project_of_slow_pages_runs_one_at_a_time_and_leaves_room_for_others(rig, tmp_path):
    pages = [rig.page(until_told(tmp_path)) for _ in range(3)]
    rig.put(*pages)
    for number, page in enumerate(pages):
        rig.until(lambda: rig.processor._aside.lanes)
        assert all(rig.run(rig.page(OK, project="q")).ok for _ in range(5))
        assert (
            len(rig.processor._aside.lanes) == 1 and len([one for one in rig.reports() if one.project == "p"]) == number
        )
        tell(tmp_path, page)
        assert rig.report_of(page).ok


@pytest.mark.behaviour("P1")
def test_pages_behind_many_slow_ones_are_given_back(rig, tmp_path, monkeypatch):
    monkeypatch.setattr(aside, "MOST_ASIDE", 2)
    slow = [rig.page(until_told(tmp_path), project=name) for name in ("p", "r", "s")]
    others = [rig.page(OK, "quiet", project="q") for _ in range(3)]
    control = rig.page(OK, "quiet", project="q", control="c1", run=0)
    rig.put(*slow, *others)
    rig.until(lambda: len(rig.processor._aside.lanes) == 2 and rig.processor._lane.page)
    rig.put(control, queue=QueueName.CONTROL)
    rig.until(lambda: rig.handed_over(QueueName.TO_PROCESSOR) and rig.handed_over(QueueName.CONTROL))
    assert rig.handed_over(QueueName.TO_PROCESSOR)[0].runs == [page.task.key for page in others]
    # another processor would take them now; here they come back after a slow one
    for page in slow:
        tell(tmp_path, page)
    assert all(rig.report_of(page).ok for page in [*slow, *others, control])


def test_projects_of_which_nobody_knew_that_they_are_slow_stop_nobody(rig, tmp_path):
    slow = [rig.page(until_told(tmp_path), project=name) for name in ("a", "b", "c", "d", "e")]
    for number, page in enumerate(slow, 1):
        rig.put(page)
        rig.until(lambda number=number: len(rig.processor._aside.lanes) == number)
        assert rig.run(rig.page(OK, project="q")).ok
    for page in slow:
        tell(tmp_path, page)
        assert rig.report_of(page).ok
    rig.until(lambda: not rig.processor._aside.lanes)
    rig.until(lambda: len(rig.processor._aside.spare) == aside.ASIDE)
    assert rig.run(rig.page(OK, project="a")).ok


def test_many_slow_projects_take_turns_and_stop_all_else_once(rig, tmp_path, monkeypatch):
    """Four of them, where two can be set aside."""
    monkeypatch.setattr(aside, "MOST_ASIDE", 2)
    # what is on its way to the queue and back misses its turn
    monkeypatch.setattr(aside.Turns, "give_back", lambda *args: False)
    slow = {name: [rig.page(until_told(tmp_path), project=name) for _ in range(2)] for name in ("w", "x", "y", "z")}
    for name in ("w", "x"):
        rig.put(slow[name][0])
    rig.until(lambda: len(rig.processor._aside.lanes) == 2)
    for name in ("y", "z"):  # nobody knows yet that they are slow
        rig.put(slow[name][0])
        rig.until(lambda name=name: rig.processor._lane.runs_for >= SLOW and rig.processor._lane.page == slow[name][0])
        tell(tmp_path, slow[name][0])
        assert rig.report_of(slow[name][0]).ok
    rig.put(*(slow[name][1] for name in ("y", "z", "w", "x")))
    assert all(rig.run(rig.page(OK, project="q")).ok for _ in range(5))
    running = {"w": slow["w"][0], "x": slow["x"][0]}
    for ended, begun in (("w", "y"), ("x", "z")):
        tell(tmp_path, running[ended])
        rig.until(lambda begun=begun: slow[begun][1] in [lane.page for lane in rig.processor._aside.lanes])
        assert rig.run(rig.page(OK, project="q")).ok
    for name in slow:
        tell(tmp_path, slow[name][1])
    assert all(rig.report_of(slow[name][1]).ok for name in slow)


def test_drain_finishes_the_page_and_gives_the_others_back(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.8)"))
    others = [fresh_rig.page(OK, project="q") for _ in range(3)]
    fresh_rig.put(slow, *others)
    fresh_rig.until(lambda: fresh_rig.heartbeat._running == slow.task.key)
    fresh_rig.stop()
    fresh_rig.pump()
    assert fresh_rig.report_of(slow, 1).ok
    assert sorted(run for item in fresh_rig.said(Release) for run in item.runs) == sorted(p.task.key for p in others)
    assert fresh_rig.heartbeat.load == 0


def test_drain_has_an_end(fresh_rig):
    fresh_rig.start(drain_timeout=0.5)
    page = fresh_rig.page(script("def cb(self, response):\n    time.sleep(60)"))
    behind = fresh_rig.page(OK, project="q")
    fresh_rig.put(page, behind)
    fresh_rig.until(lambda: fresh_rig.heartbeat._running)
    started = time.monotonic()
    fresh_rig.stop()
    fresh_rig.pump()
    assert time.monotonic() - started < 6
    assert not fresh_rig.reports()
    told = {run: item.cut_off for item in fresh_rig.said(Release) for run in item.runs}
    assert told == {page.task.key: True, behind.task.key: False}


@pytest.mark.behaviour("X-M5", "P32")
def test_results_wait_when_the_result_queue_is_full(fresh_rig):
    fresh_rig.start(results_size=1)
    pages = [fresh_rig.page(OK) for _ in range(12)]
    for page in pages:
        fresh_rig.put(page)
        time.sleep(0.05)
    queue = fresh_rig.connect(QueueName.RESULTS)()
    deadline = time.monotonic() + 15
    while not queue.qsize():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    time.sleep(0.3)
    assert queue.qsize() == 1
    fresh_rig.until(lambda: len(fresh_rig.results) == 12)
    assert {report.key for report in fresh_rig.results} == {page.task.key for page in pages}


@pytest.mark.behaviour("P2", "X-P2")
def test_paused_it_takes_nothing_and_finishes_what_it_has(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.6)"), project="slow")
    rest = [fresh_rig.page(OK, "quiet") for _ in range(3)]
    fresh_rig.put(slow, *rest)
    fresh_rig.until(lambda: fresh_rig.said(Claim))
    fresh_rig.processor.pause()
    assert all(fresh_rig.report_of(page).ok for page in (slow, *rest))
    fresh_rig.until(lambda: fresh_rig.said(Beat)[-1].state == "paused" and not fresh_rig.said(Beat)[-1].holds)
    later = fresh_rig.page(OK, "quiet")
    fresh_rig.put(later)
    beats = len(fresh_rig.said(Beat))
    fresh_rig.until(lambda: len(fresh_rig.said(Beat)) > beats + 2)
    assert len(fresh_rig.said(Claim)) == 1
    fresh_rig.processor.resume()
    assert fresh_rig.report_of(later).ok


@pytest.mark.parametrize("order", ["pause", "drain"])
def test_what_comes_in_spite_of_an_order_is_given_back(fresh_rig, order):
    fresh_rig.start()
    assert fresh_rig.run(fresh_rig.page(OK)).ok
    getattr(fresh_rig.processor, order)()
    late = [fresh_rig.page(OK), fresh_rig.page(OK)]
    for consumer, page in zip(fresh_rig.processor._consumers, late, strict=True):
        consumer._deliver(PageBatch(batch=f"late-{page.task.taskid}", pages=[page]))
    keys = [page.task.key for page in late]
    fresh_rig.until(lambda: [run for release in fresh_rig.said(Release) for run in release.runs] == keys)
    fresh_rig.until(lambda: not fresh_rig.said(Beat)[-1].holds)
    assert len(fresh_rig.reports()) == 1


def test_drained_it_gives_back_what_has_not_begun(fresh_rig):
    fresh_rig.start()
    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(0.6)"), project="slow")
    rest = [fresh_rig.page(OK, "quiet") for _ in range(3)]
    fresh_rig.put(slow, *rest)
    fresh_rig.until(lambda: any(beat.running == slow.task.key for beat in fresh_rig.said(Beat)))
    fresh_rig.processor.drain()
    assert fresh_rig.report_of(slow).ok
    fresh_rig.until(lambda: fresh_rig.said(Beat)[-1].state == "drained")
    assert [run for release in fresh_rig.said(Release) for run in release.runs] == [page.task.key for page in rest]
    fresh_rig.processor.resume()
    assert fresh_rig.run(fresh_rig.page(OK, "quiet")).ok


def test_what_it_begins_is_written_down_first_and_not_while_it_ends(fresh_rig, tmp_path):
    """Whoever kills a processor that was told to end is not the script."""
    fresh_rig.start(recorder=FlightRecorder(str(tmp_path), "w"))
    file = tmp_path / "w"

    def begun() -> bytes:
        content = file.read_bytes()
        return content[: 4 + int.from_bytes(content[:4], "big")]

    slow = fresh_rig.page(script("def cb(self, response):\n    time.sleep(1.5)"), project="slow", suspect=True)
    quick = fresh_rig.page(OK, "quiet")
    fresh_rig.put(quick)
    assert fresh_rig.report_of(quick).ok
    fresh_rig.put(slow)
    fresh_rig.until(lambda: any(beat.running == slow.task.key for beat in fresh_rig.said(Beat)))
    fresh_rig.until(lambda: slow.task.taskid.encode() in begun())
    assert quick.task.taskid.encode() not in begun()
    fresh_rig.processor.stop()
    fresh_rig.until(lambda: slow.task.taskid.encode() not in begun(), 1.4)
    assert fresh_rig.report_of(slow).ok
    fresh_rig.until(lambda: not file.exists())
