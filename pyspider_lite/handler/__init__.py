"""What a user's script subclasses: `BaseHandler`, its decorators, and what one run of a callback gives.

`base` is the class, `crawl` (with `url` and `curl`) what ``self.crawl`` makes of its arguments, `decorators` what is written
over a callback, `run` how one callback is run. No queue and no database is known here.
"""

from pyspider_lite.handler.base import BaseHandler
from pyspider_lite.handler.decorators import catch_status_code_error, config, every, not_send_status
from pyspider_lite.handler.run import Outcome

__all__ = ["BaseHandler", "Outcome", "catch_status_code_error", "config", "every", "not_send_status"]
