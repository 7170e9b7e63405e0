"""A processor alone, its child included: pages on its queue, the handler of the benchmark, reports with results off its queue."""

import hashlib
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from pyspider_lite import codec
from pyspider_lite.bench import crawl, site
from pyspider_lite.bench.roles import PROJECT, Station, put
from pyspider_lite.models.batch import PageBatch, ResultBatch
from pyspider_lite.models.names import QueueName, Role
from pyspider_lite.models.page import Dispatch, FetchResponse, Page
from pyspider_lite.models.project import Project
from pyspider_lite.models.report import Report

#: pages of a message, as fetchers send them
_BATCH = 20


def measure(folder: Path, served: site.Site, handler: str) -> dict[str, Any]:
    """All pages of the site through one processor; complete if each was reported once, with its title and its links."""
    with Station(folder, Role.PROCESSOR) as station:
        project = station.enter_project(crawl.script(handler, served.url))
        reports: list[Report] = []
        station.drain(QueueName.RESULTS, lambda body: reports.extend(codec.decode(body, ResultBatch).reports))
        station.drain(QueueName.STATUS)
        station.start()
        pages = [_page(served, index, project) for index in range(served.pages)]
        queue = station.queue(QueueName.TO_PROCESSOR)
        # the first batch is for what is made once
        put(queue, PageBatch(batch="0", pages=pages[:_BATCH]))
        station.wait(lambda: len(reports) >= _BATCH, lambda: len(reports))
        begin = station.cost()
        rest = [PageBatch(batch=str(at), pages=pages[at : at + _BATCH]) for at in range(_BATCH, len(pages), _BATCH)]
        threading.Thread(target=put, args=(queue, *rest), name="feeder", daemon=True).start()
        station.wait(lambda: len(reports) >= len(pages), lambda: len(reports))
        figures = station.figures(begin, len(pages) - _BATCH)
    return {**figures, "problems": _problems(reports, served)}


def _page(served: site.Site, index: int, project: Project) -> Page:
    url, body = served.address(index), served.body(index)
    task = Dispatch(
        taskid=hashlib.md5(url.encode()).hexdigest(),
        project=PROJECT,
        url=url,
        generation=project.generation,
        process={"callback": "page"},
        project_md5sum=hashlib.md5(project.script.encode()).hexdigest(),
    )
    headers = {"Content-Type": "text/html; charset=utf-8", "Content-Length": str(len(body))}
    return Page(task, FetchResponse(status_code=200, url=url, orig_url=url, headers=headers, content=body, time=0.01))


def _problems(reports: list[Report], served: site.Site) -> str:
    expected = served.expected()
    links = {served.address(index): set(served.targets(index)) for index in range(served.pages)}
    seen = Counter(report.url for report in reports)
    wrong = [
        report.url
        for report in reports
        if not report.ok
        or len(report.items) != 1
        or msgspec.json.decode(report.items[0].result)["title"] != expected[report.url]
        or {task.url for task in report.follows} != links[report.url]
    ]
    if len(seen) != served.pages or seen.total() != served.pages or wrong:
        return f"{len(seen)} of {served.pages} pages, {seen.total() - len(seen)} twice, {len(wrong)} wrong"
    return ""
