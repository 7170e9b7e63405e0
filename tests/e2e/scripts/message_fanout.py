from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Each row of a page becomes a result of its own, and some are told to another project."""

    def on_start(self):
        for n in range(1, 5):
            self.crawl('http://127.0.0.1:18080/list/%d' % n, callback=self.page)
        for n in range(1, 8):
            self.crawl('http://127.0.0.1:18080/item/%d' % n, callback=self.one)

    def page(self, response):
        for i, each in enumerate(response.doc('a.item').items()):
            self.send_message(self.project_name, {'name': each.text(), 'link': each.attr.href},
                              url='%s#%d' % (response.url, i))

    def one(self, response):
        self.send_message('message_sink', {'item': response.doc('h1').text()}, url=response.url)

    def on_message(self, project, msg):
        return dict(msg, sender=project)
