"""What values become: results, ``self.save``, messages and arguments of ``self.crawl`` (demands UA35, UA37)."""

import enum
import json
from collections import Counter, OrderedDict, defaultdict
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import pytest

from pyspider_lite import BaseHandler, Response
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler import Outcome


class Colour(enum.Enum):
    RED = "red"


@dataclass
class Price:
    amount: Decimal


def response() -> Response:
    return Response(200, "http://site.test/", content="<p class=c>text <a href=/x>link</a></p>")


def run(produce: Any) -> Outcome:
    class Handler(BaseHandler):
        project_name = "p"

        def cb(self, response: Response) -> Any:
            return produce(self, response)

    return Handler()._run_task({"taskid": "t", "process": {"callback": "cb"}}, response())


def nested(levels: int, inner: Any = 1) -> Any:
    for _ in range(levels):
        inner = [inner]
    return inner


def cycle() -> Any:
    value: dict[str, Any] = {"a": 1}
    value["b"] = [0, value]
    return value


ENCODINGS = [
    (datetime(2020, 1, 2, 3, 4, 5, 6), "2020-01-02T03:04:05.000006"),
    (datetime(2020, 1, 2, tzinfo=UTC), "2020-01-02T00:00:00Z"),
    (date(2020, 1, 2), "2020-01-02"),
    (time(1, 2), "01:02:00"),
    (timedelta(days=1, seconds=5), "P1DT5S"),
    (Decimal("1.50"), "1.50"),
    (UUID(int=5), "00000000-0000-0000-0000-000000000005"),
    (b"\xff\x00", "/wA="),
    ({7}, [7]),
    ((1, "a"), [1, "a"]),
    (float("nan"), None),
    (float("-inf"), None),
    (Colour.RED, "red"),
    (Price(Decimal("2.5")), {"amount": "2.5"}),
    (OrderedDict(b=1, a=2), {"b": 1, "a": 2}),
    (Counter("aa"), {"a": 2}),
    (defaultdict(list, a=[1]), {"a": [1]}),
    ({1: "a", 2.5: "b"}, {"1": "a", "2.5": "b"}),
    (2**70, 2**70),
]


@pytest.mark.behaviour("X-R1")
@pytest.mark.parametrize(("value", "stored"), ENCODINGS, ids=lambda value: type(value).__name__)
def test_encodings_of_results(value: Any, stored: Any) -> None:
    outcome = run(lambda self, response: {"value": value})
    assert outcome.ok, outcome.traceback
    assert json.loads(outcome.items[0].result) == {"value": stored}


@pytest.mark.parametrize(
    ("value", "stored"), [pair for pair in ENCODINGS if pair[0] != 2**70], ids=lambda value: type(value).__name__
)
def test_the_same_for_save_messages_and_arguments(value: Any, stored: Any) -> None:
    def produce(self: Any, response: Response) -> None:
        self.save["value"] = value
        self.send_message("p", {"value": value})
        self.crawl("http://site.test/1", save={"value": value})

    outcome = run(produce)
    assert outcome.ok, outcome.traceback
    assert outcome.save == {"value": stored}
    assert outcome.messages[0].message == {"value": stored}
    assert outcome.follows[0].fetch["save"] == {"value": stored}


def test_texts_of_pyquery_lxml_and_parsel_are_texts() -> None:
    def produce(self: Any, response: Response) -> Any:
        texts = response.etree.xpath("//a/text()")
        return {
            "pyquery": [response.doc("p").text(), response.doc("a").attr.href, response.doc("p").html()],
            "lxml": [texts[0], response.etree.xpath("string(//a)"), {texts[0]: texts}],
            "parsel": response.css("a::text").getall(),
        }

    outcome = run(produce)
    assert outcome.ok, outcome.traceback
    assert json.loads(outcome.items[0].result) == {
        "pyquery": ["text link", "http://site.test/x", 'text <a href="http://site.test/x">link</a>'],
        "lxml": ["link", "link", {"link": ["link"]}],
        "parsel": ["link"],
    }


REFUSED = [
    (lambda: {"a": [1, object()]}, "a[1]: a value of type object cannot be stored"),
    (lambda: {"a": response().doc("p")}, "a: a value of type Document cannot be stored"),
    (lambda: {"a": response().css("p")}, "a: a value of type SelectorList cannot be stored"),
    (lambda: {"a": response()}, "a: a value of type Response cannot be stored"),
    (lambda: {"a": (n for n in "abc")}, "a: a value of type generator cannot be stored"),
    (lambda: {"a": {(1, 2): 3}}, "a: a key of type tuple cannot be stored"),
    (lambda: {"a": "\ud800"}, "a: 'utf-8' codec can't encode"),
    (lambda: {"x": cycle()}, "x.b[1]: a dict that is inside itself cannot be stored"),
    (lambda: {"x": nested(100_000)}, ": a list more than 200 levels deep cannot be stored"),
    (lambda: {"x": nested(250)}, ": a list more than 200 levels deep cannot be stored"),
    (lambda: {"x": nested(150, object())}, ": a value of type object cannot be stored"),
]


@pytest.mark.behaviour("X-R1", "X-P3")
@pytest.mark.parametrize(("make", "reason"), REFUSED)
def test_what_has_no_json_fails_with_path_and_type(make: Any, reason: str) -> None:
    def yields(self: Any, response: Response) -> Any:
        yield {"fine": 1}
        yield make()

    def saves(self: Any, response: Response) -> None:
        self.save.update(make())

    places = {
        "result": lambda self, response: make(),
        "items[1]": yields,
        "self.save": saves,
        "send_message: message": lambda self, response: self.send_message("p", make()),
        "crawl(http://site.test/): save": lambda self, response: self.crawl("http://site.test/", save=make()),
    }
    for place, produce in places.items():
        outcome = run(produce)
        assert isinstance(outcome.exception, UnstorableValue), place
        said = str(outcome.exception)
        assert said.startswith(place), (place, said)
        assert reason.lstrip("ax") in said
        assert [json.loads(item.result) for item in outcome.items] == ([{"fine": 1}] if place == "items[1]" else [])


def test_two_hundred_levels_are_stored() -> None:
    outcome = run(lambda self, response: nested(200))
    assert outcome.ok, outcome.traceback
    assert json.loads(outcome.items[0].result) == nested(200)


@pytest.mark.behaviour("H23", "X-K15")
def test_each_yielded_item_is_a_row_of_its_own() -> None:
    def produce(self: Any, response: Response) -> Any:
        yield {"n": 0}
        yield self.item("sku-1", {"n": 1})
        yield from ({"n": n} for n in (2, 3))
        yield self.item(7, {"n": 4})

    outcome = run(produce)
    assert [(one.item, json.loads(one.result)["n"]) for one in outcome.items] == [
        ("0", 0),
        ("sku-1", 1),
        ("2", 2),
        ("3", 3),
        ("7", 4),
    ]


def test_a_single_value_has_no_item_name_and_a_returned_list_is_one_value() -> None:
    assert [one.item for one in run(lambda self, response: [1, 2]).items] == [""]
    keyed = run(lambda self, response: self.item("k", 1)).items
    assert [(one.item, one.result) for one in keyed] == [("k", "1")]
