from pyspider.libs.base_handler import *

API = 'http://127.0.0.1:18080/api/items'


class Handler(BaseHandler):
    crawl_config = {'headers': {'Accept': 'application/json', 'X-Requested-With': 'XMLHttpRequest'}}

    def on_start(self):
        self.crawl(API, params={'page': 1, 'size': 2}, callback=self.items)

    def items(self, response):
        data = response.json
        if data['next']:
            self.crawl(API, params={'page': data['next'], 'size': 2}, callback=self.items)
        for item in data['items']:
            self.crawl('http://127.0.0.1:18080/api/item/%d?fields=name,price' % item['id'], callback=self.item)

    @config(priority=1)
    def item(self, response):
        return response.json
