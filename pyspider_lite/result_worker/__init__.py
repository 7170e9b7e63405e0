"""The result worker (`result_worker`), and the classes that users subclass."""

from pyspider_lite.result_worker.result_worker import OneResultWorker, ResultWorker

__all__ = ["OneResultWorker", "ResultWorker"]
