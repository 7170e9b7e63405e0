from pyspider.libs.base_handler import *

SITE = 'http://127.0.0.1:18080'


class Handler(BaseHandler):
    """Ten pages that count their visits; then the same links again, the even ones with another itag."""

    def on_start(self):
        for i in range(10):
            self.crawl(SITE + '/visits/itag-%d' % i, itag='v1', age=10 * 24 * 3600, callback=self.visit, save=i)

    def visit(self, response):
        if response.json['visits'] == 1:
            self.crawl('data:,again-%d' % response.save, callback=self.again, save=response.save)
        return response.json

    def again(self, response):
        i = response.save
        itag = 'v2' if i % 2 == 0 else 'v1'
        self.crawl(SITE + '/visits/itag-%d' % i, itag=itag, age=10 * 24 * 3600, callback=self.visit, save=i)
