"""Crawls the shop of shop.py: front page, lists, items; the stock of each item comes from a JSON page of its own."""

from pyspider_lite import BaseHandler

START = "http://127.0.0.1:8000/"


class Handler(BaseHandler):
    def on_start(self):
        self.crawl(START, callback=self.front)

    def front(self, response):
        for link in response.doc("a.list").items():
            self.crawl(link.attr.href, callback=self.items)
        for link in response.doc("a.info").items():
            self.crawl(link.attr.href, callback=self.text)

    def items(self, response):
        for link in response.doc("a.item").items():
            self.crawl(link.attr.href, callback=self.item)

    def item(self, response):
        found = {
            "title": response.doc("h1").text(),
            "price": float(response.doc(".price").text()),
            "page": response.url,
        }
        self.crawl(response.url.replace("/item/", "/api/stock/"), callback=self.stock, save=found)

    def stock(self, response):
        return {**response.save, "stock": response.json["stock"]}

    def text(self, response):
        return {"title": response.doc("title").text(), "text": response.doc("p").text()}
