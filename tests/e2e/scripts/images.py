import hashlib
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    def on_start(self):
        self.crawl('http://127.0.0.1:18080/gallery', callback=self.gallery)

    def gallery(self, response):
        for img in response.doc('img').items():
            self.crawl(img.attr.src, callback=self.save_image, save={'alt': img.attr.alt})

    def save_image(self, response):
        return {'alt': response.save['alt'], 'bytes': len(response.content), 'type': response.headers['content-type'],
                'md5': hashlib.md5(response.content).hexdigest(), 'binary': isinstance(response.content, bytes)}
