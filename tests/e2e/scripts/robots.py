from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    crawl_config = {'robots_txt': True}
    retry_delay = {'': -1}

    def on_start(self):
        for i in range(1, 6):
            self.crawl('http://127.0.0.1:18080/hidden/%d' % i, callback=self.page)
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.page)
        for i in range(6, 9):
            self.crawl('http://127.0.0.1:18080/item/%d?x' % i, callback=self.page)
        self.crawl('http://127.0.0.1:18080/hidden/9', callback=self.page, robots_txt=False)

    @catch_status_code_error
    def page(self, response):
        return {'code': response.status_code, 'error': response.error}
