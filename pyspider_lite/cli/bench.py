"""`bench`: the command is with what it runs."""

from pyspider_lite.bench.command import bench_command

__all__ = ["bench_command"]
