from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for n in range(1, 5):
            self.crawl('http://127.0.0.1:18080/list/%d' % n, callback=self.list_page)
        for n in range(60, 66):
            self.crawl('http://127.0.0.1:18080/item/%d' % n, callback=self.words)

    def list_page(self, response):
        for each in response.doc('a.item').items():
            yield {'name': each.text(), 'page': response.url.rsplit('/')[-1]}

    def words(self, response):
        self.crawl('http://127.0.0.1:18080/echo?from=%s' % response.url.rsplit('/')[-1], callback=self.nothing)
        return (tag.text() for tag in response.doc('.tags li').items())

    def nothing(self, response):
        pass
