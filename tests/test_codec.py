"""Structs to bytes and back, whatever is in them; what is no message is refused; values to JSON text with errors that help."""

import collections
import datetime
import decimal
import enum
import random
import types
import typing
import uuid
from collections.abc import Iterator
from typing import Any

import msgspec
import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st
from lxml import etree

from pyspider_lite import codec
from pyspider_lite.errors import BrokenMessage, MessageTooLarge, UnsendableMessage, UnstorableValue
from pyspider_lite.models.batch import NewTaskBatch, PageBatch, ResultBatch, StatusBatch, TaskBatch
from pyspider_lite.models.control import Control
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.report import Report
from pyspider_lite.models.task import NewTask, Task

WIRE = [TaskBatch, PageBatch, ResultBatch, StatusBatch, NewTaskBatch]
PIPE = [Page, Report, Dispatch, Control, Task]


class Maker:
    """Random values of any type that the models use, from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def text(self) -> str:
        alphabet = ["a", "Z", "0", "/", "\x00", "\n", '"', "é", "中", "\u2028", "😀", "\ufeff"]
        return "".join(self.random.choices(alphabet, k=self.random.choice([0, 1, 3, 40])))

    def number(self) -> int:
        return self.random.choice([0, 1, -1, 127, 128, 2**31, -(2**63), 2**63 - 1, self.random.getrandbits(40)])

    def real(self) -> float:
        return self.random.choice([0.0, -1.5, 1e308, 5e-324, float("inf"), self.random.random() * 1e9])

    def anything(self, depth: int = 0) -> Any:
        kind = self.random.randrange(8 if depth < 3 else 6)
        if kind == 6:
            return [self.anything(depth + 1) for _ in range(self.random.randrange(3))]
        if kind == 7:
            return {self.text(): self.anything(depth + 1) for _ in range(self.random.randrange(3))}
        return [None, self.random.random() < 0.5, self.number(), self.real(), self.text(), self.random.randbytes(5)][
            kind
        ]

    def make(self, kind: Any) -> Any:
        origin, arguments = typing.get_origin(kind), typing.get_args(kind)
        if origin in (typing.Union, types.UnionType):
            return self.make(self.random.choice(arguments))
        if origin is list:
            return [self.make(arguments[0]) for _ in range(self.random.randrange(3))]
        if origin is dict:
            return {self.make(arguments[0]): self.make(arguments[1]) for _ in range(self.random.randrange(3))}
        if origin is tuple:
            return tuple(self.make(argument) for argument in arguments)
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
            return kind(**dict(self.fields(kind)))
        simple = {str: self.text, int: self.number, float: self.real, Any: self.anything, type(None): lambda: None}
        simple |= {bytes: lambda: self.random.randbytes(20), bool: lambda: self.random.random() < 0.5}
        simple |= {msgspec.Raw: lambda: msgspec.Raw(codec.pack(self.make(NewTask)))}
        return simple[kind]()

    def fields(self, kind: type[msgspec.Struct]) -> Iterator[tuple[str, Any]]:
        for field in msgspec.structs.fields(kind):
            if field.required or self.random.random() < 0.5:
                # msgspec knows no union of the two
                of_page = kind is FetchResponse and field.name == "content"
                yield field.name, self.make(bytes | str if of_page else field.type)


@pytest.mark.parametrize("content", [7, None, 1.5, ["x"], {"a": b"x"}, True])
def test_a_page_whose_content_is_neither_bytes_nor_text_cannot_be_read(content: Any) -> None:
    page = {"task": {"taskid": "t", "project": "p", "url": "u"}, "response": {"content": content}}
    forged = codec.MAGIC + b"\0" + msgspec.msgpack.encode({"type": "pages", "batch": "b", "pages": [page]})
    with pytest.raises(BrokenMessage, match="neither bytes nor text"):
        codec.decode(forged, PageBatch)


def plain(value: Any) -> Any:
    """The same with raw parts as bytes: those have no equality."""
    if isinstance(value, NewTaskBatch):
        return [bytes(task) for task in value.tasks]
    return value


@pytest.mark.parametrize("kind", WIRE)
def test_ten_thousand_random_messages_survive_a_queue(kind: type[msgspec.Struct]) -> None:
    maker = Maker(20)
    for _ in range(10_000):
        message = maker.make(kind)
        assert plain(codec.decode(codec.encode(message), kind)) == plain(message)


@pytest.mark.parametrize("kind", PIPE)
def test_random_structs_survive_a_pipe(kind: type[msgspec.Struct]) -> None:
    maker = Maker(21)
    for _ in range(1000):
        value = maker.make(kind)
        assert codec.unpack(codec.pack(value), kind) == value


values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(values)
def test_what_users_save_survives(value: Any) -> None:
    report = Report(project="p", taskid="t", url="u", run=1, track={"save": value})
    assert codec.decode(codec.encode(report), Report) == report


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=5) | st.dictionaries(st.text(), inner, max_size=5),
    max_leaves=30,
)


@given(json_values)
def test_json_values_survive_a_column(value: Any) -> None:
    assert codec.from_json(codec.to_json(value)) == value


@given(st.integers())
def test_integers_of_any_size_survive_a_column(value: int) -> None:
    assert codec.from_json(codec.to_json(value)) == value


# --- what is no message ---


@pytest.mark.behaviour("X-X4")
@given(st.binary(max_size=200))
@settings(max_examples=300)
def test_random_bytes_are_broken(body: bytes) -> None:
    for prefix in (b"", codec.MAGIC, codec.MAGIC + b"\x00", codec.MAGIC + b"\x01"):
        with pytest.raises(BrokenMessage):
            codec.decode(prefix + body, TaskBatch)


def message(content: bytes = b"x" * 20_000) -> bytes:
    page = Page(task=Dispatch(taskid="t", project="p", url="u"), response=FetchResponse(content=content))
    return codec.encode(PageBatch(batch="b", pages=[page]))


@pytest.mark.parametrize("content", [b"short", random.Random(1).randbytes(20_000)], ids=["plain", "compressed"])
def test_a_message_that_was_cut_is_broken(content: bytes) -> None:
    body = message(content)
    for length in {*range(0, len(body), max(1, len(body) // 200)), len(body) - 1}:
        with pytest.raises(BrokenMessage):
            codec.decode(body[:length], PageBatch)


def test_a_message_with_flipped_bits_is_broken_or_another_message() -> None:
    body, rng = message(), random.Random(2)
    for _ in range(500):
        changed = bytearray(body)
        changed[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
        try:
            assert isinstance(codec.decode(bytes(changed), PageBatch), PageBatch)
        except BrokenMessage as error:
            assert str(error)


def test_the_reason_says_what_is_wrong() -> None:
    cases = {
        b"": "not a message of pyspider_lite",
        b"\x80\x04\x95": "not a message of pyspider_lite",
        b"PSL\x02\x00": "run one version everywhere",
        codec.MAGIC + b"\x07x": "unknown compression b'\\x07'",
        codec.MAGIC: "unknown compression b''",
        codec.MAGIC + b"\x01nozstd": "broken compression",
        message(): "not a TaskBatch: ",
        codec.encode(NewTaskBatch(tasks=[])): "not a TaskBatch: ",
    }
    for body, reason in cases.items():
        with pytest.raises(BrokenMessage) as caught:
            codec.decode(body, TaskBatch)
        assert reason in str(caught.value)
    with pytest.raises(BrokenMessage, match="not a Page: "):
        codec.unpack(b"\xc1", Page)


@pytest.mark.parametrize("write_size", [True, False])
def test_a_bomb_is_not_opened(write_size: bool) -> None:
    packer = zstandard.ZstdCompressor(write_content_size=write_size).compressobj(
        size=codec.MAX_DECODED + 1 if write_size else -1
    )
    packed = packer.compress(bytes(codec.MAX_DECODED + 1)) + packer.flush()
    assert len(packed) < 100_000
    with pytest.raises(BrokenMessage):
        codec.decode(codec.MAGIC + b"\x01" + packed, TaskBatch)


def test_a_bomb_that_lies_about_its_size_is_not_opened() -> None:
    small = zstandard.ZstdCompressor().compress(b"x" * 200)
    lying = bytearray(small)
    lying[5] = 10  # frame content size, one byte
    with pytest.raises(BrokenMessage):
        codec.decode(codec.MAGIC + b"\x01" + bytes(lying), TaskBatch)


@pytest.mark.parametrize("nested", [b"\x91", b"\x81\xa1a"])
def test_very_deep_messages_are_broken(nested: bytes) -> None:
    body = codec.MAGIC + b"\x00" + nested * 100_000 + b"\xc0"
    with pytest.raises(BrokenMessage):
        codec.decode(body, object)


def test_large_messages_are_compressed() -> None:
    assert len(message(b"x" * 1_000_000)) < 1000


def test_what_is_too_large_is_not_sent() -> None:
    with pytest.raises(MessageTooLarge, match="over the limit of 12582912"):
        message(random.Random(3).randbytes(codec.MAX_ENCODED))
    with pytest.raises(MessageTooLarge, match="before compression is over the limit of 67108864"):
        message(bytes(codec.MAX_DECODED))  # small when compressed; nobody would open it


# --- values of scripts ---


class Text(str):
    """As lxml's and pyquery's."""


class Number(int):
    """As numpy's and pandas' like to be."""


class Colour(enum.Enum):
    RED = "red"


def test_subclasses_are_stored_as_what_they_are() -> None:
    smart = etree.fromstring("<a href='x'>t</a>").xpath("//@href")[0]
    assert type(smart) is not str
    value = {
        Text("key"): Text("value"),
        "smart": smart,
        "number": Number(3),
        "list": [Text("x")],
        "dict": collections.defaultdict(int, a=1),
        "enum": Colour.RED,
    }
    expected = {"key": "value", "smart": "x", "number": 3, "list": ["x"], "dict": {"a": 1}, "enum": "red"}
    assert codec.from_json(codec.to_json(value)) == expected
    unpacked = codec.unpack(codec.pack(value), object)
    assert unpacked == expected
    assert type(unpacked["smart"]) is str  # type: ignore[index]


@pytest.mark.behaviour("X-P3")
@pytest.mark.parametrize(
    ("value", "text"),
    [
        (float("nan"), "null"),
        ([float("inf"), float("-inf")], "[null,null]"),
        (b"\xff\x00", '"/wA="'),
        (datetime.datetime(2024, 2, 29, 12, 0, 1), '"2024-02-29T12:00:01"'),
        (datetime.date(2024, 2, 29), '"2024-02-29"'),
        (decimal.Decimal("1.50"), '"1.50"'),
        (uuid.UUID(int=1), '"00000000-0000-0000-0000-000000000001"'),
        ((1, 2), "[1,2]"),
        ({1}, "[1]"),
        ({1: "a", 2.5: "b"}, '{"1":"a","2.5":"b"}'),
        ("中 😀 \x00", '"中 😀 \\u0000"'),
    ],
)
def test_json_of(value: Any, text: str) -> None:
    assert codec.to_json(value) == text


cyclic: list[Any] = [1]
cyclic.append({"again": cyclic})
deep: Any = 1
for _ in range(100_000):
    deep = [deep]


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (object(), r"\$: a value of type object cannot be stored"),
        ({"items": [0, 1, 2, {"date": object()}]}, r"\$\.items\[3\]\.date: a value of type object cannot be stored"),
        ({"a": ({"b": 1j},)}, r"\$\.a\[0\]\.b: a value of type complex cannot be stored"),
        ({"a": {(1, 2): 3}}, r"\$\.a: a key of type tuple cannot be stored"),
        ({"a": {None: 3}}, r"\$\.a: a key of type NoneType cannot be stored"),
        ({"fine": 1, "bad": "x\ud800"}, r"\$\.bad: .*surrogates not allowed"),
        ({"a": {"x\ud800": 1}}, r"\$\.a: .*surrogates not allowed"),
        ({"a": [1, cyclic]}, r"\$\.a\[1\]\[1\]\.again: a list that is inside itself cannot be stored"),
        ({"deep": deep}, r"\$\.deep\[0\].*: a list more than 200 levels deep cannot be stored"),
        ({"x\ud800": object()}, r"\$\.x\\ud800: a value of type object cannot be stored"),
        ({"k" * 10_000: object()}, r"\$\.kkk.*: a value of type object cannot be stored"),
        ({"g": (n for n in [])}, r"\$\.g: a value of type generator cannot be stored"),
    ],
)
def test_what_cannot_be_stored_is_named(value: Any, reason: str) -> None:
    with pytest.raises(UnstorableValue, match=reason) as caught:
        codec.to_json(value)
    assert len(str(caught.value)) < 400
    str(caught.value).encode()  # it will be logged and stored


@pytest.mark.parametrize("empty", [None, "", b""])
@pytest.mark.behaviour("D20")
def test_an_empty_column_is_an_empty_dict(empty: Any) -> None:
    assert codec.from_json(empty) == {}


@given(st.one_of(st.binary(), st.text().map(str.encode), st.just(b"[BASE64-DATA]AA==[/BASE64-DATA]")))
def test_a_body_comes_back_from_its_text(body):
    """F2, X-P1."""
    assert codec.text_to_bytes(codec.bytes_to_text(body)) == body


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        (2**64, "more than 64 bits"),
        (-(2**63) - 1, "more than 64 bits"),
        ("\ud800", "half a surrogate pair"),
        (object(), "object"),
    ],
)
def test_what_no_message_can_carry_is_said_in_one_sentence(value: Any, reason: str) -> None:
    task = NewTask("t", "p", "u", fetch={"save": value})
    with pytest.raises(UnsendableMessage, match=reason):
        codec.encode(StatusBatch(items=[Report(project="p", taskid="t", url="u", run=0, track={"save": value})]))
    assert reason in (codec.refusal(task) or "")
    assert codec.refusal(NewTask("t", "p", "u", fetch={"save": 2**64 - 1})) is None


def test_a_dead_letter_keeps_what_no_message_can_carry() -> None:
    kept = NewTask("t", "p", "u", fetch={"save": 2**70})
    assert str(2**70).encode() in codec.keepsake(kept)
    assert codec.keepsake({"save": "\ud800"}) == b""
    assert codec.unpack(codec.keepsake(NewTask("t", "p", "u")), NewTask).taskid == "t"


def test_what_is_nested_too_deeply_for_the_way_is_refused_when_it_is_read() -> None:
    for levels in (300, 5_000):
        with pytest.raises(ValueError, match="nested too deeply"):
            codec.from_shallow_json("[" * levels + "]" * levels)
    assert codec.from_shallow_json("[" * 200 + "]" * 200) and codec.from_shallow_json("") == {}
