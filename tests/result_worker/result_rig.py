"""A result worker on memory queues and a real SQLite resultdb."""

import itertools
import json
import threading
import time

from pyspider_lite import codec
from pyspider_lite.database import connect_resultdb
from pyspider_lite.heartbeat.heartbeat import Heartbeat
from pyspider_lite.heartbeat.worker_info import WorkerInfo
from pyspider_lite.message_queue.memory import MemoryQueue
from pyspider_lite.models.batch import ResultBatch, StatusBatch
from pyspider_lite.models.names import QueueName
from pyspider_lite.models.report import Item, Report
from pyspider_lite.models.task import NewTask
from pyspider_lite.result_worker import ResultWorker

_spaces = itertools.count()


def report(taskid="t1", *results, project="p", run=1, **fields):
    items = [Item(str(n) if len(results) > 1 else "", codec.to_json(result)) for n, result in enumerate(results)]
    track = {"fetch": {"ok": True}, "process": {"ok": True, "time": 0.1, "logs": "log", "exception": None}, "save": {}}
    task = NewTask(taskid, project, f"http://a/{taskid}", fetch={"save": 1})
    return Report(
        **{
            "project": project,
            "taskid": taskid,
            "url": task.url,
            "run": run,
            "items": items,
            "track": track,
            "task": task,
        }
        | fields
    )


class Flaky:
    """A resultdb that raises what ``fail`` gives for a batch, and counts."""

    def __init__(self, resultdb, fail):
        self.resultdb, self.fail, self.calls, self.late = resultdb, fail, [], False

    def projects(self):
        return self.resultdb.projects()

    def store(self, results, *, late=False):
        self.calls.append(len(results))
        self.late = late
        error = self.fail(results)
        if error is not None:
            raise error
        self.resultdb.store(results)


class Rig:
    def __init__(self, url, cls=ResultWorker, fail=None):
        self.space = f"results-{next(_spaces)}"
        self.resultdb = connect_resultdb(url)
        # the worker's own connection
        stored = connect_resultdb(url)
        self.flaky = Flaky(stored, fail or (lambda results: None))
        self.heartbeat = Heartbeat(WorkerInfo.make("result_worker", 1), self.connect(QueueName.STATUS), 0.3)
        self.worker = cls(self.flaky, self.connect(QueueName.RESULTS)).attach(heartbeat=self.heartbeat, drain_timeout=2)
        self.status = []
        #: its process would be gone
        self.ended = False
        self.thread = threading.Thread(target=self.worker.run)
        self._closing = [self.resultdb, stored]

    def connect(self, name):
        return lambda: MemoryQueue(self.space, name)

    def start(self):
        self.heartbeat.start()
        self.thread.start()
        return self

    def stop(self):
        self.worker.stop()
        self.thread.join(10)
        assert not self.thread.is_alive()
        assert self.heartbeat.stop(5) or self.ended
        for one in self._closing:
            one.close()
        self.pump()

    def put(self, *reports):
        self.connect(QueueName.RESULTS)().put(
            codec.encode(ResultBatch(batch=f"b{time.monotonic()}", reports=list(reports))), 1
        )

    def pump(self):
        for received in self.connect(QueueName.STATUS)().get(1000, 0):
            self.status += codec.decode(received.body, StatusBatch).items

    def said(self, kind):
        self.pump()
        return [item for item in self.status if isinstance(item, kind)]

    def reports(self, count):
        self.until(lambda: len(self.said(Report)) >= count)
        return {one.taskid: one for one in self.said(Report)}

    def until(self, condition, seconds=10):
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, self.status[-3:]
            time.sleep(0.01)

    def stored(self, taskid="t1", project="p"):
        return {row.item: json.loads(row.result) for row in self.resultdb.get(project, taskid)}
