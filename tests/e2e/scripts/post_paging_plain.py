from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    # ten forms posted to one address: without a taskid of their own
    def on_start(self):
        for page in range(1, 11):
            self.crawl('http://127.0.0.1:18080/search', data={'q': 'green', 'page': page}, callback=self.page)

    def page(self, response):
        return response.json
