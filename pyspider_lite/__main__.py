"""``python -m pyspider_lite``: the same as the command ``pyspider_lite``."""

import sys

from pyspider_lite.cli import main

sys.exit(main())
