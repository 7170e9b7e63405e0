"""Which signals ask a process of ours to end."""

import signal


def heard() -> list[signal.Signals]:
    """SIGTERM, SIGINT, and SIGHUP of a terminal that is closed, but for those that are ignored, as SIGHUP by what `nohup` started."""
    wanted = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
    return [number for number in wanted if signal.getsignal(number) != signal.SIG_IGN]
