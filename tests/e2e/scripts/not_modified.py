from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Pages that say when they did not change, asked for again after a second."""

    def on_start(self):
        for i in range(5):
            self.crawl('http://127.0.0.1:18080/etag/%d' % i, callback=self.page, age=1, auto_recrawl=True)

    @catch_status_code_error
    def page(self, response):
        codes = self.save.setdefault('codes', [])
        if len(codes) < 3:
            codes.append(response.status_code)
        return {'codes': codes}
