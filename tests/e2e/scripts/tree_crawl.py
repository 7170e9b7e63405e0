from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """A whole site by its links, each page once, deeper pages first."""

    def on_start(self):
        self.crawl('http://127.0.0.1:18080/tree/', callback=self.page)

    @config(age=24 * 60 * 60)
    def page(self, response):
        depth = response.url.count('-')
        for each in response.doc('a[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.page, priority=depth)
        return {'path': response.url.split('/tree/')[-1], 'links': len(response.doc('a'))}
