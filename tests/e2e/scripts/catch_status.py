from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    retry_delay = {'': -1}

    def on_start(self):
        for code in (200, 201, 204, 400, 403, 404, 410, 418, 500, 502, 503):
            self.crawl('http://127.0.0.1:18080/status/%d' % code, callback=self.caught)
        self.crawl('http://127.0.0.1:18080/status/404?strict', callback=self.strict)

    @catch_status_code_error
    def caught(self, response):
        if response.status_code == 404:
            self.crawl('http://127.0.0.1:18080/item/404', callback=self.strict)
        return {'code': response.status_code, 'ok': response.ok, 'isok': response.isok(), 'error': response.error}

    def strict(self, response):
        return {'title': response.doc('h1').text()}
