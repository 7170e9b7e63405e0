import re
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        self.crawl('http://127.0.0.1:18080/list/1', callback=self.index_page)
        self.crawl('http://127.0.0.1:18080/list/2', callback=self.index_page)
        self.crawl('http://127.0.0.1:18080/list/4', callback=self.index_page)
        self.crawl('http://127.0.0.1:18080/table', callback=self.table)

    def index_page(self, response):
        for link in response.etree.xpath('//a[@class="item"]'):
            self.crawl('http://127.0.0.1:18080' + link.get('href'), callback=self.detail_page)

    def detail_page(self, response):
        tree = response.etree
        return {
            'title': tree.xpath('//h1/text()')[0],
            'price': tree.xpath('string(//*[contains(@class, "price")])'),
            'tags': tree.xpath('//ul[@class="tags"]/li/text()'),
            'number': int(re.search(r'/item/(\d+)', response.url).group(1)),
        }

    def table(self, response):
        rows = []
        for tr in response.etree.xpath('//table[@id="data"]/tr')[1:]:
            rows.append([td.text_content().strip() for td in tr.xpath('./td')])
        return {'rows': rows}
