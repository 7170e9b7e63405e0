"""`explain`: how a page is found, and what is said of one that is not there, or is odd."""

from collections.abc import Callable
from hashlib import md5
from typing import Any

import pytest
from explained_shop import NOT_ASKED, URL, Shop

from pyspider_lite.models.task import TaskStatus


def test_a_page_that_was_never_submitted(said: Callable[..., str]) -> None:
    assert said("http://shop.test/b") == (
        "http://shop.test/b was never crawled: project shop has no such task, so nothing submitted it, or each submission "
        f"was dropped or is not stored yet.\n{NOT_ASKED}"
    )
    assert said("no-id").startswith("no-id was never crawled")


def test_a_link_that_is_no_url(said: Callable[..., str]) -> None:
    assert said("http://shop.test/" + "x" * 1024).startswith("http://shop.test/xxx")
    assert "is never crawled: self.crawl drops it (bad-url): Maximum (1024)" in said("http://shop.test/" + "x" * 1024)


def test_a_url_is_found_as_self_crawl_writes_it(shop: Shop, said: Callable[..., str]) -> None:
    written = "http://shop.test/%E4%BB%B7"
    shop.submitted(written, md5(written.encode()).hexdigest())
    assert said("http://shop.test/价").startswith(f"{written} was submitted")


@pytest.mark.parametrize(
    ("page", "written"),
    [
        ("mailto:a@b.c", "mailto:a@b.c"),
        ("javascript:void(0)", "javascript:void(0)"),
        ("tel:1", "tel:1"),
        ("about.html", "about.html"),
        ("", "/"),
    ],
)
def test_whatever_self_crawl_takes_is_found_by_its_text(
    shop: Shop, said: Callable[..., str], page: str, written: str
) -> None:
    shop.submitted(written, md5(written.encode()).hexdigest())
    assert said(page).startswith(f"{written} was submitted")


def test_an_id_may_look_like_a_url(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted("http://shop.test/api", "shop://item/1")
    assert said("shop://item/1").startswith("http://shop.test/api was submitted")


def test_tasks_with_ids_of_their_own_are_found_by_url(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted("http://shop.test/api", "page-1")
    shop.submitted("http://shop.test/api", "page-2")
    lines = said("http://shop.test/api").splitlines()
    assert [lines[0], lines[2]] == ["page-2:", "page-1:"]
    assert lines[1] == lines[3]
    assert said("page-1").startswith("http://shop.test/api was submitted")


def test_a_project_that_is_not_there(shop: Shop, command: Callable[..., Any], said: Callable[..., str]) -> None:
    outcome = command("explain", "shpo", URL)
    assert outcome.code == 2
    assert outcome.err == (
        "pyspider_lite: there is no project shpo, so submissions to it are dropped; did you mean shop?\n"
    )
    shop.submitted()
    shop.projectdb.drop("shop")
    assert "but there is no project shop any more, so nothing gives it out." in said()


def test_rows_of_pyspider_with_odd_content(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    shop.ended(TaskStatus.FAILED, {"fetch": None, "process": "gone"})
    assert "(HTTP status unknown)" in said()
    shop.ended(TaskStatus.ACTIVE, {"save": 1}, age="soon")
    assert ". Its schedule.age is 'soon', not a number, so the default is taken.\n" in said()


def test_an_exception_without_a_text_is_named(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    process = {"ok": False, "exception": "", "error": "AssertionError"}
    shop.ended(TaskStatus.FAILED, {"fetch": {"ok": True, "status_code": 200}, "process": process})
    assert "(AssertionError)" in said()


def test_links_that_the_callback_dropped(shop: Shop, said: Callable[..., str]) -> None:
    shop.submitted()
    track = {"fetch": {"status_code": 200}, "process": {"ok": True, "dropped": {"bad-url": 2, "duplicate": 1}}}
    shop.ended(TaskStatus.SUCCESS, track)
    assert "\nIts callback dropped links: bad-url 2, duplicate 1.\n" in said()
