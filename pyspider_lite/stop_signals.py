"""Which signals ask a process of ours to end."""

import signal


def heard() -> list[signal.Signals]:
    """SIGTERM and SIGINT; and SIGHUP of a terminal that is closed, unless it is ignored, as by what `nohup` started."""
    hangup = [] if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN else [signal.SIGHUP]
    return [signal.SIGTERM, signal.SIGINT, *hangup]
