from lxml import etree
from pyspider.libs.base_handler import *

NS = {'s': 'http://www.sitemaps.org/schemas/sitemap/0.9'}


class Handler(BaseHandler):
    def on_start(self):
        self.crawl('http://127.0.0.1:18080/sitemap.xml', callback=self.sitemap)

    def sitemap(self, response):
        root = etree.fromstring(response.content)
        for url in root.findall('s:url', NS):
            self.crawl(url.findtext('s:loc', namespaces=NS), itag=url.findtext('s:lastmod', namespaces=NS), callback=self.page)
        for item in response.doc('loc').items():
            assert item.text().startswith('http')

    def page(self, response):
        return {'title': response.doc('title').text(), 'itag': self.task['schedule']['itag']}
