"""How queues, daemons and runs are called."""

from enum import StrEnum


class QueueName(StrEnum):
    """The queues between the roles (behaviour Q2), and ours for the scheduler's control work."""

    NEW_TASKS = "newtask_queue"
    STATUS = "status_queue"
    TO_FETCHER = "scheduler2fetcher"
    TO_PROCESSOR = "fetcher2processor"
    CONTROL = "scheduler2processor"
    RESULTS = "processor2result"


class Role(StrEnum):
    """The daemons."""

    SCHEDULER = "scheduler"
    FETCHER = "fetcher"
    PROCESSOR = "processor"
    RESULT_WORKER = "result_worker"


#: the run number of control work, which has no task row to count in
CONTROL_RUN = -1

#: One run of one task: project, taskid, run. For control work the taskid is the control row's id and the run is -1.
RunKey = tuple[str, str, int]
