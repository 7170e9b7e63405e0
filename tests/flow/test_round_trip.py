"""10,000 random tasks go over a queue, into the database, out of it and over a queue again, and are what they were (UB16)."""

from contextlib import closing
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import Raw

from pyspider_lite import codec
from pyspider_lite.database import connect_taskdb
from pyspider_lite.database.base import NewRow
from pyspider_lite.message_queue.memory import MemoryQueue
from pyspider_lite.models.batch import NewTaskBatch, TaskBatch
from pyspider_lite.models.page import Dispatch
from pyspider_lite.models.task import NewTask

BATCH, BATCHES = 100, 100

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=12)
SCALAR = (
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT
)
VALUE = st.recursive(
    SCALAR, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3), max_leaves=6
)
OPTIONS = st.dictionaries(TEXT, VALUE, max_size=3)


@settings(max_examples=BATCHES, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_what_comes_out_is_what_went_in(data: st.DataObject, tmp_path_factory: Any) -> None:
    folder: Path = tmp_path_factory.getbasetemp()
    # a few parts are drawn, and combined to a hundred different tasks: drawing each anew would take minutes
    parts = data.draw(st.lists(OPTIONS, min_size=10, max_size=10))
    names = data.draw(st.lists(TEXT, min_size=BATCH, max_size=BATCH))
    tasks = [
        NewTask(
            f"{n}:{name}",
            "p",
            f"http://a.test/{name}",
            schedule=parts[n % 10],
            fetch=parts[n // 10],
            process=parts[(n + n // 10) % 10],
        )
        for n, name in enumerate(names)
    ]
    came = over_a_queue(NewTaskBatch(tasks=[Raw(codec.pack(task)) for task in tasks]), NewTaskBatch)
    received = [codec.unpack(bytes(raw), NewTask) for raw in came.tasks]
    with closing(connect_taskdb(f"sqlite+taskdb:///{folder}/round_trip.db")) as taskdb:
        taskdb.open_project("p")
        with taskdb.begin(None) as tx:
            tx.insert("p", [NewRow(task=task, due=1.0, priority=0, updatetime=1.0) for task in received])
        stored = {task.taskid: task for task in taskdb.get("p", [task.taskid for task in tasks])}
        taskdb.drop_project("p")
    given_out = [
        Dispatch(
            taskid=task.taskid,
            project="p",
            url=task.url,
            schedule=task.schedule,
            fetch=task.fetch,
            process=task.process,
        )
        for task in (stored[task.taskid] for task in tasks)
    ]
    batch = over_a_queue(TaskBatch(batch="b", epoch=1, tasks=given_out), TaskBatch)
    assert [
        NewTask(task.taskid, task.project, task.url, task.schedule, task.fetch, task.process) for task in batch.tasks
    ] == tasks


def over_a_queue(message: Any, kind: Any) -> Any:
    """The message as a queue delivers it."""
    with closing(MemoryQueue("round-trip", "q")) as queue:
        queue.put(codec.encode(message), 1)
        (received,) = queue.get(1, 1)
    return codec.decode(received.body, kind)
