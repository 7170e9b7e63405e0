# -*- coding: utf-8 -*-
# imported by other projects as projects.common_tools
from pyspider.libs.base_handler import *

CURRENCY = 'USD'


def parse_item(response):
    return {'name': response.doc('h1').text(), 'price': response.doc('.price').text().strip('$'), 'currency': CURRENCY}


class Base(BaseHandler):
    def item_page(self, response):
        return parse_item(response)


class Handler(Base):
    def on_start(self):
        for i in range(40, 51):
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.item_page)
