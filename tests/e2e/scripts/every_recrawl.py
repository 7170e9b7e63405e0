from pyspider.libs.base_handler import *

SITE = 'http://127.0.0.1:18080'


class Handler(BaseHandler):
    """Looks at a page each second, and at two others again and again."""

    def on_start(self):
        self.crawl([SITE + '/visits/recrawl-1', SITE + '/visits/recrawl-2'], callback=self.watch, age=1, auto_recrawl=True)

    @every(seconds=1)
    def tick(self):
        self.crawl(SITE + '/visits/tick', callback=self.watch, age=0, force_update=True)

    def watch(self, response):
        visits = response.json['visits']
        return {'page': response.json['page'], 'often': visits >= 4}
