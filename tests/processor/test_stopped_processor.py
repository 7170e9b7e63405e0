"""A zygote whose processor was stopped: a process in the place of the processor, with a real zygote below it."""

import os
import signal
import subprocess
import sys
import time

import pytest

PROCESSOR = """
import os, socket, time
from pyspider_lite.processor.zygote import Zygote

ours, theirs = socket.socketpair()
if not os.fork():
    ours.close()
    Zygote(theirs, {}, 0.8).run()
    os._exit(0)
print("ready", flush=True)
time.sleep(20)
"""


@pytest.mark.parametrize(
    ("variables", "seconds", "code"),
    [({"SUPERVISOR_ENABLED": "1"}, 10, -signal.SIGKILL), ({"SUPERVISOR_ENABLED": "1"}, 0.3, None), ({}, 2, None)],
)
def test_only_under_a_supervisor_and_after_a_while_it_is_killed(variables, seconds, code):
    environ = os.environ | variables
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESSOR],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environ,
        start_new_session=True,
    )
    try:
        assert process.stdout is not None and process.stdout.readline() == b"ready\n"
        process.send_signal(signal.SIGSTOP)
        until = time.monotonic() + seconds
        while process.poll() is None and time.monotonic() < until:
            time.sleep(0.02)
        process.send_signal(signal.SIGCONT)
        if code is None:
            time.sleep(1.2)  # it would be late now
        assert process.poll() == code
        process.kill()
        assert (b"has been stopped by a signal for 1 s" in process.communicate(timeout=10)[1]) == (code is not None)
    finally:
        process.kill()
        process.wait()
