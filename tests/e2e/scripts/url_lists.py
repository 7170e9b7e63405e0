# -*- coding: utf-8 -*-
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Lists, generators, links that are not there, params, and addresses that need escaping."""

    def on_start(self):
        tasks = self.crawl(['http://127.0.0.1:18080/echo?n=%d' % i for i in range(4)], callback=self.echo)
        assert len(tasks) == 4
        self.crawl(('http://127.0.0.1:18080/echo?g=%d' % i for i in range(3)), callback=self.echo)
        assert self.crawl(None, callback=self.echo) is None
        self.crawl('  http://127.0.0.1:18080/echo?strip=1  ', callback=self.echo)
        self.crawl('http://127.0.0.1:18080/echo', params={'a': [1, 2], 'none': None, u'词': u'中 文'}, callback=self.echo)
        self.crawl(u'http://127.0.0.1:18080/echo/路径?q=值', callback=self.echo)
        self.crawl('http://127.0.0.1:18080/echo?n=0', callback=self.echo)
        self.crawl('http://127.0.0.1:18080/echo?frag#one', callback=self.echo)

    def echo(self, response):
        return {'path': response.json['path'], 'query': response.json['query'], 'url': response.url.split('18080')[-1][:5]}
