"""``python -m pyspider_lite.bench`` is `pyspider_lite bench`."""

import sys

from pyspider_lite.bench import programs
from pyspider_lite.bench.command import bench_command

sys.exit(programs.run(bench_command, "scripts/bench"))
