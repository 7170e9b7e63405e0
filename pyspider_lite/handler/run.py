"""How one callback is run, and all that it produced: the `Outcome`. Called by `BaseHandler`, read by the processor's child."""

import asyncio
import inspect
import traceback
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from msgspec import Struct

from pyspider_lite import codec
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler.crawl import Call
from pyspider_lite.models.report import Item, Message
from pyspider_lite.models.task import NewTask

_OUR_FOLDER = str(Path(__file__).parent.parent)


class Outcome(Struct, kw_only=True):
    """All that one run of a callback produced. After a failure too: what was collected until then (behaviour H27)."""

    items: list[Item] = []
    #: without `generation`, which the caller knows
    follows: list[NewTask] = []
    #: how many there were before these, which were sent while the callback ran
    sent: int = 0
    messages: list[Message] = []
    #: calls of ``self.crawl`` that entered nothing, by reason: bad-url, duplicate (of a request of this run), same-taskid (as
    #: another request of this run)
    dropped: dict[str, int] = {}
    #: what ``self.save`` was left as, in plain JSON values
    save: Any = None
    #: without its traceback, which would keep the page alive
    exception: BaseException | None = None
    #: the text of the traceback, from the script's own lines on
    traceback: str | None = None
    #: the first ten characters of the result (behaviour P22)
    results_shown: str | None = None
    #: the answer of `_on_get_info` (behaviour H63); of `_on_cronjob`: why it left a tick out
    info: dict[str, Any] | None = None
    #: the callback is marked ``@not_send_status``
    no_status: bool = False

    @property
    def ok(self) -> bool:
        """Whether the callback ran to its end."""
        return self.exception is None


class KeyedItem:
    """What ``self.item(key, value)`` gives, to be yielded or returned."""

    __slots__ = ("key", "value")

    def __init__(self, key: str, value: Any) -> None:
        self.key = key
        self.value = value


#: sends links of a callback that still runs; False if that cannot be done now
Send = Callable[[list[NewTask]], bool]
#: of more links than these a callback sends the first ones, so many at once
COLLECTED, PIECE = 1000, 500


class Run:
    """What is collected while a callback runs. Of a callback with very many links only the ids stay here: the links are sent in pieces."""

    def __init__(self, send: Send | None = None) -> None:
        self.outcome = Outcome()
        self._send = send
        self._sent: set[str] = set()
        #: the calls of ``self.crawl`` that had a callback and nothing else, by the callback
        self.calls: dict[Any, Call] = {}
        self._follows: dict[str, NewTask] = {}
        self._items: dict[str, Item] = {}
        #: how many items an id was given to that the script did not choose
        self._given: dict[str, int] = {}
        #: items made by ``self.item`` that were not yielded or returned so far, by identity
        self._not_given: dict[int, KeyedItem] = {}
        # of the value that on_result has now
        self._item_id, self._explicit, self._place = "", False, "result"

    def follow(self, task: NewTask) -> str:
        """Collect a link; of two with the same taskid the first counts (behaviour H49). Says what is to be logged, or ""."""
        if task.taskid in self._sent:
            self.drop("duplicate")
            return ""
        first = self._follows.setdefault(task.taskid, task)
        if first is task:
            self.outcome.follows.append(task)
            if self._send is not None and len(self.outcome.follows) > COLLECTED:
                self._send_piece(self._send)
        elif (first.url, first.fetch) == (task.url, task.fetch):
            self.drop("duplicate")
        elif self.drop("same-taskid") == 1:  # one says it all
            return f"crawl({task.url[:200]!r}): dropped: its taskid is that of {first.url[:200]!r}"
        return ""

    def _send_piece(self, send: Send) -> None:
        piece = self.outcome.follows[:PIECE]
        if send(piece):
            del self.outcome.follows[:PIECE]
            self.outcome.sent += len(piece)
            for task in piece:
                del self._follows[task.taskid]
                self._sent.add(task.taskid)

    def drop(self, reason: str) -> int:
        """Count a call of ``self.crawl`` that enters nothing; how many there were for this reason."""
        count = self.outcome.dropped[reason] = self.outcome.dropped.get(reason, 0) + 1
        return count

    def keyed(self, key: Any, value: Any) -> KeyedItem:
        """An item under a key of its own; raises UnstorableValue for a key that is no text."""
        item = KeyedItem(str(key), value)
        codec.to_json(item.key)
        self._not_given[id(item)] = item
        return item

    def left_over(self) -> list[KeyedItem]:
        """What ``self.item`` made and nobody yielded: it counts all the same."""
        return list(self._not_given.values())

    def begin_item(self, item_id: str, value: Any) -> Any:
        """Name the value that on_result gets next, and return it bare."""
        self._item_id, self._explicit, self._place = item_id, False, f"items[{item_id}]" if item_id else "result"
        if isinstance(value, KeyedItem):
            self._item_id, self._explicit, self._place = value.key, True, f"items[{value.key}]"
            self._not_given.pop(id(value), None)
            return value.value
        return value

    def store(self, result: Any) -> None:
        """Collect a result under the name given by `begin_item`; more than one under the same name get numbers.

        UnstorableValue says where in the result the value sits that is not JSON, as ``items[3].date``.
        """
        try:
            text = codec.to_json(result)
        except UnstorableValue as error:
            raise UnstorableValue(self._place + str(error).removeprefix("$")) from None
        item_id = self._item_id
        if not self._explicit:
            count = self._given.get(item_id, 0)
            self._given[item_id] = count + 1
            if count:
                item_id = f"{item_id}.{count}".lstrip(".")
        self._items[item_id] = Item(item_id, text)

    def finish(self) -> Outcome:
        """All that was collected."""
        self.outcome.items = list(self._items.values())
        return self.outcome

    def fail(self, error: BaseException) -> None:
        """Note why the run failed; the first reason stays."""
        if self.outcome.exception is not None:
            return
        self.outcome.traceback = _format(error)
        self.outcome.exception = error.with_traceback(None)

    def show(self, result: Any) -> None:
        """Keep the beginning of the result for the track (behaviour P22)."""
        if result is not None:
            with suppress(Exception):
                self.outcome.results_shown = str(result)[:10]


def call(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call ``function`` with as many of the arguments as it has positional parameters, defaults included (behaviour H20)."""
    return function(*arguments[: _parameters(function)])


def _parameters(function: Callable[..., Any]) -> int:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is not None:
        # self is one of them; for a static method it is not, and pyspider miscounted likewise
        return max(int(code.co_argcount) - 1, 0)
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(parameter.kind in kinds for parameter in inspect.signature(function).parameters.values())


Emit = Callable[[str, Any], Any]


def deliver(result: Any, emit: Emit) -> int | None:
    """Give ``emit`` each item of the result with its id: "" for a single value, else its place ("0", "1" ...).

    Generators, coroutines and asynchronous generators are run to their end here, so that they are within the time limit
    (X-P5). Returns how many there were, None for a single value.
    """
    if inspect.iscoroutine(result):
        return deliver(asyncio.run(result), emit)
    if isinstance(result, AsyncIterator):
        return asyncio.run(_deliver_async(result, emit))
    if not isinstance(result, Iterator):
        _finish(emit("", result))
        return None
    count = 0
    try:
        for count, value in enumerate(result, 1):
            _finish(emit(str(count - 1), value))
    finally:
        if inspect.isgenerator(result):
            result.close()
    return count


async def _deliver_async(result: AsyncIterator[Any], emit: Emit) -> int:
    count = 0
    try:
        async for value in result:
            answer = emit(str(count), value)
            count += 1
            if isinstance(answer, Awaitable):
                await answer
    finally:
        if inspect.isasyncgen(result):
            await result.aclose()
    return count


def _finish(answer: Any) -> None:
    """Run what an ``async def on_result`` gave."""
    if inspect.iscoroutine(answer):
        asyncio.run(answer)


def _format(error: BaseException) -> str:
    """The traceback without our own frames at its top: the first line is one of the script."""
    frame: TracebackType | None = error.__traceback__
    while frame is not None and frame.tb_frame.f_code.co_filename.startswith(_OUR_FOLDER):
        frame = frame.tb_next
    try:
        return "".join(traceback.format_exception(type(error), error, frame))
    except Exception:  # the exception's own __str__ or notes are broken
        return f"{type(error).__name__} (it cannot be shown)\n"
