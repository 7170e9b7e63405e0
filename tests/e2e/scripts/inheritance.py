from pyspider.libs.base_handler import *


class Shop(BaseHandler):
    start = None
    crawl_config = {'headers': {'X-Shop': 'base'}}

    def on_start(self):
        self.crawl(self.start, callback=self.index_page)

    @config(age=3600)
    def index_page(self, response):
        for each in response.doc('a.item').items():
            self.crawl(each.attr.href, callback=self.detail_page)

    @config(priority=3, fetch_type=None)
    def detail_page(self, response):
        return self.parse(response)

    def parse(self, response):
        return {'title': response.doc('h1').text()}


class Handler(Shop):
    start = 'http://127.0.0.1:18080/list/2'

    def on_start(self):
        super(Handler, self).on_start()
        self.crawl('http://127.0.0.1:18080/list/3', callback=super(Handler, self).index_page)
        for i in range(6):
            self.crawl('http://127.0.0.1:18080/echo?i=%d' % i, callback=self.echo)

    def parse(self, response):
        result = super(Handler, self).parse(response)
        result['price'] = response.doc('.price').text()
        return result

    def echo(self, response):
        return {'shop': response.json['headers'].get('X-Shop')}
