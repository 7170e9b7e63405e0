import asyncio

from pyspider_lite import *


class Handler(BaseHandler):
    async def on_start(self):
        for n in range(1, 5):
            await asyncio.sleep(0)
            self.crawl(f'http://127.0.0.1:18080/list/{n}', callback=self.list_page)

    async def list_page(self, response):
        for link in response.links('a.item'):
            self.crawl(link, callback=self.detail_page)
            await asyncio.sleep(0.001)
            yield {'link': link}

    async def detail_page(self, response):
        first, second = await asyncio.gather(self.part(response, 'h1'), self.part(response, '.price'))
        return {'title': first, 'price': second}

    async def part(self, response, selector):
        await asyncio.sleep(0.001)
        return response.doc(selector).text()
