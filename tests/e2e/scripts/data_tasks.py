from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Steps without a request between requests."""

    def on_start(self):
        for i in range(5):
            self.crawl('data:,step-%d' % i, callback=self.step, save={'i': i})
        self.crawl('data:text/plain;base64,aGVsbG8=', callback=self.inline)

    def inline(self, response):
        return {'text': response.text, 'code': response.status_code}

    def step(self, response):
        assert response.text == 'step-%d' % response.save['i']
        for j in range(2):
            self.crawl('http://127.0.0.1:18080/item/%d' % (response.save['i'] * 2 + j + 1), callback=self.page, save=response.text)

    def page(self, response):
        return {'step': response.save, 'title': response.doc('h1').text()}
