import time
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        now = time.time()
        for i in range(10):
            self.crawl('http://127.0.0.1:18080/echo?delayed=%d' % i, exetime=now + i * 0.2, priority=i,
                       callback=self.page, save=now + i * 0.2)

    def page(self, response):
        return {'query': response.json['query'], 'not_early': time.time() >= response.save}
