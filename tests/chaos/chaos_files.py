"""The files of a run of chaos in which all is well, made by hand."""

import json
from pathlib import Path
from typing import Any

from pyspider_lite.bench.chaos.files import Files
from pyspider_lite.bench.chaos.pages import Request, path_of, title

PAGES = 6
Row = dict[str, Any]


def well() -> Files:
    """Page i is asked for at 10 + i and done one second later; page 2 was in hand at a harm, was lost and asked for again."""
    kill = {"event": "harm", "harm": 1, "time": 12.5, "kind": "kill", "pid": 7, "role": "fetcher[0]"}
    events: list[Row] = [
        {"event": "begin", "time": 9.0, "seed": 1, "minutes": 0.04, "stack": "builtin-sqlite", "pages": PAGES},
        {**kill, "signal": "SIGKILL", "seconds": 0, "in_hand": 1, "pages": [2]},
        {"event": "exit", "time": 12.6, "pid": 7, "role": "fetcher[0]", "code": -9, "wanted": True},
        {"event": "start", "time": 9.5, "pid": 7, "role": "fetcher[0]"},
        {"event": "end", "time": 30.0, "left": []},
    ]
    requests = [Request(10.0 + page, "fetcher[0]", path_of(page)) for page in range(PAGES)]
    requests.append(Request(20.0, "fetcher[1]", path_of(2)))
    results = [
        {
            "url": f"http://127.0.0.1:1{path_of(page)}",
            "taskid": f"t{page}",
            "item": "",
            "run": 0,
            "result": {"page": page, "title": title(page)},
            "writes": [21.0 if page == 2 else 11.0 + page],
        }
        for page in range(PAGES)
    ]
    tasks: list[Row] = [
        {"url": row["url"], "taskid": row["taskid"], "status": "success", "run": 1, "updatetime": row["writes"][0]}
        for row in results
    ]
    tasks.append({"counts": {"active": 0, "success": PAGES, "failed": 0, "bad": 0}, "controls": [], "dead_letters": []})
    return Files(events, requests, results, tasks)


def write(folder: Path, files: Files) -> None:
    for name, rows in (("harms", files.events), ("results", files.results), ("tasks", files.tasks)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    lines = [f"{request.time:.4f} {request.agent} {request.path}\n" for request in files.requests]
    (folder / "access.log").write_text("".join(lines))
