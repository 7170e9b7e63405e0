# -*- coding: utf-8 -*-
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        self.crawl('http://127.0.0.1:18080/gb/', callback=self.index_page)

    def index_page(self, response):
        for each in response.doc('a').items():
            self.crawl(each.attr.href, callback=self.detail_page, save={u'标题': each.text()})

    def detail_page(self, response):
        return {
            u'标题': response.save[u'标题'],
            u'正文': response.doc('p').text(),
            'same': response.save[u'标题'] == response.doc('h1').text(),
            'encoding': response.encoding,
        }
