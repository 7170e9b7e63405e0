import json
from pyspider.libs.base_handler import *
from pyspider.libs.utils import md5string


class Handler(BaseHandler):
    """One address, many pages: the page number is in the posted form."""

    def get_taskid(self, task):
        return md5string(task['url'] + json.dumps(task['fetch'].get('data', '')))

    def on_start(self):
        for word in ('red', 'blue'):
            self.search(word, 1)

    def search(self, word, page):
        self.crawl('http://127.0.0.1:18080/search', method='POST', data={'q': word, 'page': page},
                   callback=self.page, save={'word': word, 'page': page})

    def page(self, response):
        found = response.json
        if found['more']:
            self.search(response.save['word'], response.save['page'] + 1)
        return {'word': response.save['word'], 'page': response.save['page'], 'hits': found['hits']}
