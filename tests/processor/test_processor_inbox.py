"""Pages in hand that have not begun: which comes next, which wait apart, and when there is room for more."""

from msgspec.structs import replace

from pyspider_lite.models.names import QueueName
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.processor import inbox
from pyspider_lite.processor.inbox import Inbox

PAGES, CONTROL = QueueName.TO_PROCESSOR, QueueName.CONTROL


def page(project: str, number: int, size: int = 1, suspect: bool = False) -> Page:
    url = f"http://site.test/{number}"
    return Page(
        Dispatch(taskid=url, project=project, url=url, suspect=suspect),
        FetchResponse(status_code=200, content=b"x" * size),
    )


def rest(box: Inbox) -> list[Page]:
    return [page for pages in iter(lambda: box.get(0), []) for page in pages]


def test_a_batch_comes_whole_and_control_work_one_by_one_before_it():
    box = Inbox()
    pages, more = [page("p", n) for n in range(3)], [page("p", n) for n in range(3, 5)]
    control = [page("p", n) for n in range(5, 7)]
    box.put(PAGES, pages)
    box.put(PAGES, more)
    assert box.get(0) == pages
    box.put(CONTROL, control)
    box.put_back(pages[1:])
    box.put_back([])
    assert [box.get(0) for _ in range(5)] == [control[:1], control[1:], pages[1:], more, []]


def test_control_work_takes_no_more_time_than_the_pages_behind_it():
    box = Inbox()
    messages, pages = [page("talks", n) for n in range(8)], [[page("p", n)] for n in range(8)]
    box.put(CONTROL, messages)
    for batch in pages[:2]:
        box.put(PAGES, batch)
    assert box.get(0) == messages[:1]
    box.used(control=True, seconds=0.5)
    assert box.get(0) == pages[0]
    box.used(control=False, seconds=0.3)
    assert box.get(0) == pages[1]
    box.used(control=False, seconds=0.3)
    box.put(PAGES, pages[2])
    assert box.get(0) == messages[1:2], "the pages had more by now"
    box.used(control=True, seconds=900.0)
    assert box.get(0) == pages[2]
    # nothing else waits
    assert box.get(0) == messages[2:3]
    box.put(PAGES, pages[3])
    assert box.get(0) == pages[3]
    box.used(control=False, seconds=2.5)
    box.put(PAGES, pages[4])
    assert box.get(0) == messages[3:4], "what was long ago does not count"


def test_parked_projects_wait_apart_and_leave_room():
    box = Inbox()
    slow, quick = [page("slow", n) for n in range(4)], [page("quick", n) for n in range(4)]
    box.put(PAGES, [slow[0], quick[0]])
    box.put(CONTROL, [slow[1]])
    box.park(frozenset({"slow"}))
    box.put(PAGES, [slow[2]])
    box.put(PAGES, [quick[1], slow[3]])
    assert rest(box) == quick[:2]
    assert box.wait_for_room(PAGES, 0) and box.wait_for_room(CONTROL, 0)
    assert box.get_parked({"slow"}) is None
    assert box.get_parked(()) == slow[1]  # control work goes first
    assert box.get_parked({"quick"}) == slow[0]
    box.park(frozenset())
    assert rest(box) == slow[2:] and box.get_parked(()) is None


def test_projects_that_wait_apart_take_turns():
    """Messages of one without end let pages of the others go."""
    box = Inbox()
    box.park(frozenset({"a", "b", "c"}))
    box.put(PAGES, [page("a", n) for n in range(3)])
    box.put(CONTROL, [page(project, n) for n in range(10, 13) for project in ("b", "c", "a")])
    order = []
    for _ in range(6):
        found = box.get_parked(())
        order.append((found.task.project, int(found.task.url.rpartition("/")[2])))
    assert order == [("b", 10), ("c", 10), ("a", 10), ("b", 11), ("c", 11), ("a", 11)]
    assert [box.get_parked({"b", "c"}).task.url for _ in range(3)][1:] == [page("a", n).task.url for n in (0, 1)]


def test_what_waits_apart_is_bounded_and_can_be_taken(monkeypatch):
    monkeypatch.setattr(inbox, "PARKED", 3)
    monkeypatch.setattr(inbox, "PARKED_BYTES", 1000)
    box = Inbox()
    box.park(frozenset({"slow"}))
    box.put(PAGES, [page("slow", n) for n in range(3)])
    assert not box.wait_for_room(PAGES, 0) and box.wait_for_room(CONTROL, 0)
    assert [len(pages) for pages in box.take_parked().values()] == [3]
    assert box.wait_for_room(PAGES, 0)
    assert not box.crowded
    large = page("slow", 4)
    box.put(CONTROL, [replace(large, task=replace(large.task, fetch={"save": "x" * 2000}))])
    assert box.crowded and not box.wait_for_room(PAGES, 0) and not box.wait_for_room(CONTROL, 0)
    box.park(frozenset({"slow", "other"}))
    assert box.crowded
    box.put(PAGES, [page("quick", 5)])
    assert {queue: len(pages) for queue, pages in box.take_all().items()} == {CONTROL: 1, PAGES: 1}
    assert box.wait_for_room(PAGES, 0) and not rest(box)


def test_suspects_wait_for_all_others_and_keep_more_from_coming():
    box = Inbox()
    suspects = [page("quick", n, suspect=True) for n in range(2)]
    others = [page(project, n) for n, project in enumerate(("quick", "slow"), 2)]
    box.put(PAGES, [suspects[0], *others])
    box.put(CONTROL, [suspects[1]])
    assert box.suspects and not box.wait_for_room(PAGES, 0) and not box.wait_for_room(CONTROL, 0)
    box.park(frozenset({"slow"}))
    assert rest(box) == others[:1]
    assert box.take_parked() == {PAGES: others[1:]} and box.suspects
    box.put(PAGES, others[:1])
    assert box.take_all(suspects=False) == {PAGES: others[:1]}
    box.park(frozenset())
    assert rest(box) == [suspects[1], suspects[0]]  # control work goes first
    assert not box.suspects and box.wait_for_room(PAGES, 0)
    box.put(PAGES, suspects)
    assert box.take_all() == {PAGES: suspects} and not box.suspects
