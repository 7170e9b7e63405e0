import re
import json
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        for i in range(10):
            self.crawl('http://127.0.0.1:18080/jsonp/%d?callback=jQuery_123' % i, callback=self.comments)

    def comments(self, response):
        assert response.json is None
        data = json.loads(re.match(r'jQuery_123\((.*)\);?$', response.text, re.S).group(1))
        return {'id': data['id'], 'comments': [each['text'] for each in data['comments']]}
