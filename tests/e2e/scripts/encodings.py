# -*- coding: utf-8 -*-
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for name in ('utf-8-header', 'utf-8-meta', 'bom', 'gbk-meta', 'big5-header', 'shift_jis-meta', 'euc-kr-header',
                     'cp1251-meta', 'latin1-header', 'wrong-header'):
            self.crawl('http://127.0.0.1:18080/encoded/' + name, callback=self.page)

    def page(self, response):
        if response.url.endswith('wrong-header'):
            response.encoding = 'gbk'
        return {'name': response.url.rsplit('/')[-1], 'text': response.doc('p').text(), 'again': u'<p>' in response.text}
