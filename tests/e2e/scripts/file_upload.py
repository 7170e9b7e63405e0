from pyspider.libs.base_handler import *

URL = 'http://127.0.0.1:18080/upload'


class Handler(BaseHandler):
    def on_start(self):
        for i in range(10):
            self.crawl('%s?n=%d' % (URL, i), files={'file': ('f%d.bin' % i, bytes(bytearray(range(i * 10))))},
                       data={'comment': 'number %d' % i}, callback=self.done)
        self.crawl(URL + '?n=text', files={'a': 'plain text', 'b': ('b.txt', 'second')}, data={}, callback=self.done)

    def done(self, response):
        return response.json
