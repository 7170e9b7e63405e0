from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for n in (1, 2, 3, 5):
            self.crawl('http://127.0.0.1:18080/redirect/%d' % n, callback=self.landed)
        self.crawl('http://127.0.0.1:18080/redirect/4?limited', max_redirects=2, callback=self.caught)
        self.crawl('http://127.0.0.1:18080/redirect/1?stay', allow_redirects=False, callback=self.caught)

    def landed(self, response):
        return {'orig': response.orig_url.split('18080')[-1][-11:], 'landed': response.url[-7:], 'title': response.doc('h1').text()}

    @catch_status_code_error
    def caught(self, response):
        return {'code': response.status_code, 'location': (response.headers.get('Location') or '')[-6:], 'ok': response.ok}
