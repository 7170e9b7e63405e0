"""`BaseHandler`: what users' scripts subclass (behaviour sections 2.1 to 2.7).

The processor's child makes one instance for each version of a script and calls `_run_task` for each page. Everything in here
works without ``__init__`` having run: scripts define their own and do not call it.
"""

import logging
import time
from collections.abc import Iterable
from pprint import pprint
from typing import Any, ClassVar, cast

from msgspec import to_builtins

from pyspider_lite import codec, crawl_config, cron
from pyspider_lite.errors import UnstorableValue
from pyspider_lite.handler import crawl, curl, decorators
from pyspider_lite.handler import run as running
from pyspider_lite.handler.crawl import Call
from pyspider_lite.handler.decorators import not_send_status
from pyspider_lite.handler.run import KeyedItem, Outcome
from pyspider_lite.handler.url import BadUrl, request_id
from pyspider_lite.models.report import Message
from pyspider_lite.response import Response
from pyspider_lite.response.document import Patterns


class BaseHandler:
    """A crawler. Subclass it, define ``on_start`` and callbacks, and call ``self.crawl`` in them."""

    #: default options for all tasks of the project
    crawl_config: ClassVar[dict[str, Any]] = {}
    #: seconds to wait before the n-th retry: ``{0: 30, 1: 3600, "": 86400}``, ``[30, 3600, 86400]``, or one number for all
    retry_delay: ClassVar[Any] = {}

    #: set by whoever loads the script
    project_name: str = ""
    project: dict[str, Any] = {}
    logger: logging.Logger = logging.getLogger("pyspider_lite.script")
    __env__: dict[str, Any] = {}

    #: during a run only (behaviour H11)
    task: dict[str, Any] | None = None
    response: Response | None = None
    #: kept with the task between its runs (behaviour H60)
    save: Any = None

    _run: running.Run | None = None

    # --- what scripts call ----------------------------------------------------------------------------------------------

    def crawl(self, url: Any, **options: Any) -> Any:
        """Enter a URL (or each of several, or a ``curl`` command) as a task. Returns the task dict, or a list of them.

        None is ignored, as ``each.attr.href`` of an element without one is (behaviour H40). What is no URL is not entered, but
        logged and counted, and the callback goes on: a page may link to anything. Options: behaviour H50 to H56; an unknown one is
        a TypeError. Outside a callback the task is returned and goes nowhere.
        """
        if isinstance(url, bytes):
            url = url.decode("utf-8", "replace")
        if isinstance(url, str) and url.startswith("curl "):
            arguments = curl.curl_to_arguments(url)
            url = arguments.pop("urls")
            options = {**arguments, **options}
        if not isinstance(url, str) and not isinstance(url, Iterable):
            self.logger.debug("crawl(%r): not a URL, ignored", url)
            return None
        call = self._call(options)
        if isinstance(url, str):
            return self._enter(url, call)
        tasks = (self._enter(each, call) for each in url if each is not None)
        return [task for task in tasks if task is not None]

    def crawl_links(
        self,
        css: str | None = None,
        allow: Patterns = None,
        deny: Patterns = None,
        same_site: bool = True,
        **options: Any,
    ) -> list[Any]:
        """`crawl` each of the page's `Response.links`, with the same choice: ``self.crawl_links(allow=r"/item/", callback=self.item_page)``.
        Raises RuntimeError outside a callback."""
        if self.response is None:
            raise RuntimeError("crawl_links: there is no page outside a callback")
        links = self.response.links(css, allow, deny, same_site)
        return cast("list[Any]", self.crawl(links, **options))

    def item(self, key: str, value: Any) -> KeyedItem:
        """A result under a key of its own: ``yield self.item(sku, {...})``. A later run replaces the item of the same key."""
        if self._run is None:
            return KeyedItem(str(key), value)
        return self._run.keyed(key, value)

    def send_message(self, project: str, msg: Any, url: str = "data:,on_message") -> None:
        """Have ``on_message`` of another project (or this one) called with ``msg``; a url of its own per message keeps its
        results apart (behaviour H61)."""
        try:
            msg = codec.from_json(codec.to_json(msg))
        except UnstorableValue as error:
            raise UnstorableValue(f"send_message: message{str(error).removeprefix('$')}") from None
        if self._run is not None:
            self._run.outcome.messages.append(Message(project, msg, url))

    def is_debugger(self) -> Any:
        """Whether this runs in the debugger of the web UI."""
        return self.__env__.get("debugger")

    # --- what scripts override ------------------------------------------------------------------------------------------

    def get_taskid(self, task: dict[str, Any]) -> str:
        """The identity of a task, unless ``taskid`` is given: the MD5 of its URL (behaviour H43), of method, URL and body for all
        but a plain GET. Override it to tell tasks apart by something else."""
        fetch = task.get("fetch") or {}
        return request_id(task["url"], fetch.get("method"), fetch.get("data"))

    def on_message(self, project: str, msg: Any) -> Any:
        """Called for each message from ``project``; what it returns is a result."""

    def on_result(self, result: Any) -> Any:
        """Store what a callback returned or yielded, unless it is falsy (behaviour H24).

        An override is called for each item with ``(result[, response[, task]])`` and stores by calling this one.
        """
        if not result or self._run is None:
            return
        if self.is_debugger():
            pprint(result)
        self._run.store(result)

    def on_finished(self, response: Response, task: dict[str, Any]) -> Any:
        """Called when no task of the project waits any more (behaviour H62)."""

    # --- what the class says about itself -------------------------------------------------------------------------------

    @classmethod
    def cron_jobs(cls) -> list[tuple[str, int]]:
        """Name and interval in seconds of each ``@every`` method that has one, inherited ones too."""
        return decorators.cron_jobs(cls)

    @classmethod
    def min_tick(cls) -> int:
        """Seconds between the ticks the cron jobs need, 0 without jobs."""
        return decorators.min_tick(cls)

    # --- callbacks of the system ----------------------------------------------------------------------------------------

    @not_send_status
    def _on_cronjob(self, response: Response, task: dict[str, Any]) -> None:
        """Run the job that the tick names, or all that it fits; what they return is thrown away (behaviour H34). One that fails does not
        stop the others."""
        save = response.save if isinstance(response.save, dict) else {}
        tick, named = save.get("tick"), save.get("job")
        if tick is None or self._came_too_late(save, time.time()):
            return
        failed: list[Exception] = []
        for job in decorators.jobs(type(self)):
            if job.name != named if named else not cron.is_tick(job, int(tick)):
                continue
            try:
                running.deliver(running.call(getattr(self, job.name), response, task), _thrown_away)
            except Exception as error:
                if failed:
                    self.logger.exception("%s failed, too", job.name)
                failed.append(error)
        if failed:
            raise failed[0]

    def _came_too_late(self, save: dict[str, Any], now: float) -> bool:
        """The tick waited for longer than its job's misfire_grace; the scheduler is told."""
        if save.get("latest") is None or now <= save["latest"]:
            return False
        why = cron.too_late(save["tick"], now)
        self.logger.warning("%s does not run: %s", save.get("job"), why)
        if self._run is not None:
            self._run.outcome.info = {"left_out": why}
        return True

    @not_send_status
    def _on_message(self, response: Response) -> Any:
        project, msg = response.save
        return self.on_message(project, msg)

    def _on_get_info(self) -> None:
        """Tell the scheduler what the script says about its project (behaviour H63)."""
        retry_delay = self.retry_delay
        info = {
            "min_tick": self.min_tick(),
            "retry_delay": retry_delay if isinstance(retry_delay, dict | list | tuple) else {"": retry_delay},
            "crawl_config": self.crawl_config,
            "cron": [interval for _, interval in self.cron_jobs()],
            "jobs": [to_builtins(job) for job in decorators.jobs(type(self))],
        }
        try:
            plain = codec.from_json(codec.to_json(info))
        except UnstorableValue as error:
            raise UnstorableValue(str(error).removeprefix("$.")) from None
        if self._run is not None:
            self._run.outcome.info = plain

    # --- one run --------------------------------------------------------------------------------------------------------

    def _run_task(self, task: dict[str, Any], response: Response, send: running.Send | None = None) -> Outcome:
        """Run the callback of ``task``. Nothing escapes: SystemExit, KeyboardInterrupt and RecursionError fail the run (X-P4).

        The caller sets time and memory limits around this; an exception it raises in here is the run's exception. ``send`` takes links
        before the callback ends, if there are very many.
        """
        run = self._run = running.Run(send)
        stored = (task.get("track") or {}).get("save")
        before = codec.to_json(stored) if stored else "{}"
        self.task, self.response, self.save = task, response, {} if stored is None else stored
        try:
            self._call_back(run, task, response)
        except BaseException as error:
            run.fail(error)
        try:
            run.outcome.save = codec.from_json(codec.to_json(self.save)) if self.save else self.save
        except UnstorableValue as error:
            run.fail(UnstorableValue(f"self.save{str(error).removeprefix('$')}"))
            run.outcome.save = codec.from_json(before)
        finally:
            self.task = self.response = self.save = self._run = None
        return run.finish()

    def _call_back(self, run: running.Run, task: dict[str, Any], response: Response) -> None:
        function = self._method((task.get("process") or {}).get("callback") or "__call__")
        run.outcome.no_status = getattr(function, "_not_send_status", False)

        def emit(item_id: str, value: Any) -> Any:
            return running.call(self.on_result, run.begin_item(item_id, value), response, task)

        result = None
        if getattr(function, "_catch_status_code_error", False):
            result = running.call(function, response, task)
        elif response.status_code != 304:
            response.raise_for_status()
            result = running.call(function, response, task)
        count = running.deliver(result, emit)
        for item in run.left_over():
            running.deliver(item, emit)
        run.show(result if count is None else f"{count} items")

    def _method(self, name: Any) -> Any:
        if not isinstance(name, str) or not hasattr(self, name):
            raise NotImplementedError(f"self.{name}() not implemented!")
        return getattr(self, name)

    def _call(self, options: dict[str, Any]) -> Call:
        """The call of ``crawl`` with the options of ``@config``. One with a callback and nothing else, as most are, is made once in a
        run."""
        defaults = crawl_config.schedule_defaults(self.crawl_config)
        callback = options.get("callback")
        mine = len(options) == 1 and getattr(callback, "__self__", None) is self
        function = callback.__func__ if mine and callback is not None else None
        known = self._run.calls.get(function) if self._run is not None else None
        if known is not None and known.defaults == defaults:
            return known
        merged = crawl_config.merge(options, getattr(self._callback(options), "_config", {}))
        call = Call(merged, defaults)
        if self._run is not None and function is not None:
            self._run.calls[function] = call
        return call

    def _enter(self, url: Any, call: Call) -> dict[str, Any] | None:
        """Enter one URL of the call; None if it is none."""
        try:
            task = call.task(self.project_name, url)
        except BadUrl as error:
            self.logger.warning("crawl(%.200r): dropped: %s", url, error)
            if self._run is not None:
                self._run.drop("bad-url")
            return None
        # before the debugger joins crawl_config, so that an id there is the id of the task when it runs
        task["taskid"] = str(call.options.get("taskid") or self.get_taskid(task))
        debugged = self.is_debugger()
        if debugged:
            task["fetch"] = crawl_config.join_fetch(task["fetch"], self.crawl_config)
            task["process"] = crawl_config.join_process(task["process"], self.crawl_config)
        unchanged = not debugged and type(self).get_taskid is BaseHandler.get_taskid
        submission = call.submission(task) if unchanged else crawl.submission(task)
        if self._run is not None:
            remark = self._run.follow(submission)
            if remark:
                self.logger.warning(remark)
        return task

    def _callback(self, options: dict[str, Any]) -> Any:
        """The method meant by the callback option, which becomes its name (behaviour H44)."""
        callback = options.get("callback")
        if not callback:
            return None
        if not callable(callback):
            return self._method(callback)
        options["callback"] = callback.__name__
        # of a plain function or a lambda: AttributeError
        return callback if callback.__self__ is self else self._method(callback.__name__)


def _thrown_away(item_id: str, value: Any) -> None:
    """Takes the results of cron jobs."""
