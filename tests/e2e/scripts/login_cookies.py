from pyspider.libs.base_handler import *

SITE = 'http://127.0.0.1:18080'


class Handler(BaseHandler):
    """Logs in by a form, then carries the cookies along."""

    def on_start(self):
        self.crawl(SITE + '/login', callback=self.logged_in, data={'user': 'alice', 'password': 'wonder&land'},
                   allow_redirects=False, age=0)
        self.crawl(SITE + '/private/0', callback=self.anonymous)

    @catch_status_code_error
    def anonymous(self, response):
        return {'page': 0, 'code': response.status_code}

    @catch_status_code_error
    def logged_in(self, response):
        assert response.status_code == 302, response.status_code
        for i in range(1, 10):
            self.crawl(SITE + '/private/%d' % i, cookies=response.cookies, callback=self.private)

    def private(self, response):
        return {'page': int(response.url.rsplit('/', 1)[1]), 'hello': response.doc('#hello').text()}
