from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Takes messages and crawls for each of them."""

    def on_start(self):
        for n in range(20, 24):
            self.crawl('http://127.0.0.1:18080/item/%d' % n, callback=self.more, save={'item': 'Item %d' % n, 'from': 'me'})

    def on_message(self, project, msg):
        number = msg['item'].split()[-1]
        self.crawl('http://127.0.0.1:18080/item/%s?sink' % number, callback=self.more, save={'item': msg['item'], 'from': project})

    def more(self, response):
        return {'item': response.save['item'], 'from': response.save['from'], 'price': response.doc('.price').text()}
