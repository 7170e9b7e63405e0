from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Pages that are there at the first, second or third try, and two that never are."""
    retry_delay = {0: 0, 1: 0.2, '': 0.2}

    def on_start(self):
        for i in range(6):
            self.crawl('http://127.0.0.1:18080/flaky/%d?fails=%d' % (i, i % 3), callback=self.page)
        self.crawl('http://127.0.0.1:18080/flaky/never?fails=100', callback=self.page, retries=1)
        self.crawl('http://127.0.0.1:18080/flaky/once?fails=100', callback=self.page, retries=0)

    def page(self, response):
        return response.json
