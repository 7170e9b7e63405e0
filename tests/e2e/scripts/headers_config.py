from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    crawl_config = {
        'headers': {'User-Agent': 'Mozilla/5.0 config', 'X-A': 'config', 'X-B': 'config'},
        'cookies': {'lang': 'en'},
        'timeout': 60,
    }

    def on_start(self):
        url = 'http://127.0.0.1:18080/echo?i='
        for i in range(5):
            self.crawl(url + 'plain%d' % i, callback=self.echo)
        self.crawl(url + 'call', callback=self.echo, headers={'X-A': 'call'}, cookies={'sid': '1'})
        self.crawl(url + 'ua', callback=self.echo, user_agent='agent of the call')
        self.crawl(url + 'decorated', callback=self.decorated, headers={'X-A': 'call', 'X-C': 'call'})
        self.crawl(url + 'put', callback=self.decorated, method='PUT', data='raw body')
        self.crawl(url + 'etag', callback=self.echo, headers={'If-None-Match': 'x'}, etag=False)

    def echo(self, response):
        headers = response.json['headers']
        return {'method': response.json['method'], 'body': response.json['body'],
                'headers': [headers.get(name) for name in ('User-Agent', 'X-A', 'X-B', 'X-C')],
                'cookies': sorted((headers.get('Cookie') or '').split('; '))}

    @config(headers={'X-C': 'decorator', 'X-B': 'decorator'}, age=60)
    def decorated(self, response):
        return self.echo(response)
