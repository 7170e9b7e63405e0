# -*- coding: utf-8 -*-
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """State that goes along with the links, and state that stays with a page."""
    retry_delay = {'': 0}

    def on_start(self):
        self.crawl('http://127.0.0.1:18080/list/1', callback=self.list_page, save={u'路': [u'始'], 'depth': 0})

    def list_page(self, response):
        way = response.save[u'路'] + [response.url.rsplit('/')[-1]]
        for a in response.doc('a.item').items():
            self.crawl(a.attr.href, callback=self.detail, save={u'路': way, 'depth': response.save['depth'] + 1})
        self.crawl(response.doc('a.next').attr.href, callback=self.list_page, save={u'路': way, 'depth': response.save['depth'] + 1})

    def detail(self, response):
        self.save['tries'] = self.save.get('tries', 0) + 1
        if self.save['tries'] < 3 and response.url.endswith('1'):
            raise ValueError('once more, please')
        return {'way': response.save[u'路'], 'depth': response.save['depth'], 'tries': self.save['tries'], 'title': response.doc('h1').text()}
