"""A fetcher alone: tasks on its queue, pages of the generated site, pages off its queue."""

import hashlib
from collections import Counter
from pathlib import Path
from typing import Any

from pyspider_lite import codec
from pyspider_lite.bench import site
from pyspider_lite.bench.roles import PROJECT, Station, put
from pyspider_lite.models.batch import PageBatch, TaskBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch

#: tasks of a message, as the scheduler makes them for a pool of 100
_BATCH = 25
#: so many that no fetcher holds back for them
_PROCESSORS = 10_000


def measure(folder: Path, served: site.Site) -> dict[str, Any]:
    """All pages of the site through one fetcher; complete if each came once, with status 200 and its own title."""
    served.forget()
    with Station(folder, Role.FETCHER, {"fetcher": {"no_xmlrpc": True}}) as station:
        bodies: list[bytes] = []
        counted = 0

        def heard(body: bytes) -> None:
            nonlocal counted
            bodies.append(body)
            counted += len(codec.decode(body, PageBatch).pages)

        station.drain(QueueName.TO_PROCESSOR, heard)
        station.drain(QueueName.STATUS)
        station.start()
        # the first batch is for what is made once
        tasks = [_task(served.address(index)) for index in range(served.pages)]
        queue = station.queue(QueueName.TO_FETCHER)
        put(queue, _batch("0", tasks[:_BATCH]))
        station.wait(lambda: counted >= _BATCH, lambda: counted)
        begin = station.cost()
        for start in range(_BATCH, len(tasks), _BATCH):
            put(queue, _batch(str(start), tasks[start : start + _BATCH]))
        station.wait(lambda: counted >= len(tasks), lambda: counted)
        figures = station.figures(begin, len(tasks) - _BATCH)
    return {**figures, "problems": _problems(bodies, served)}


def _task(url: str) -> Dispatch:
    taskid = hashlib.md5(url.encode()).hexdigest()
    return Dispatch(taskid=taskid, project=PROJECT, url=url, process={"callback": "page"})


def _batch(name: str, tasks: list[Dispatch]) -> TaskBatch:
    return TaskBatch(batch=name, epoch=1, tasks=tasks, processors=_PROCESSORS)


def _problems(bodies: list[bytes], served: site.Site) -> str:
    pages = [page for body in bodies for page in codec.decode(body, PageBatch).pages]
    seen = Counter(page.task.url for page in pages)
    expected = served.expected()
    wrong = [
        page.task.url
        for page in pages
        if page.response.status_code != 200
        or f"<title>{expected[page.task.url]}</title>".encode() not in page.response.content
    ]
    if len(seen) != served.pages or seen.total() != served.pages or wrong:
        return f"{len(seen)} of {served.pages} pages, {seen.total() - len(seen)} twice, {len(wrong)} wrong"
    return ""
