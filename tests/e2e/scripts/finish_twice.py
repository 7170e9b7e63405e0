from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Crawls a second part when the first is over, and sums up in the end."""

    def on_start(self):
        for i in range(1, 7):
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.page, save='first')

    def page(self, response):
        return {'part': response.save, 'title': response.doc('h1').text()}

    def on_finished(self, response, task):
        for i in range(6, 11):
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.page, save='second')
        return {'finished': True}
