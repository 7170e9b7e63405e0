"""Follows the links of one site, on its own host only, and returns the title of each page."""

from urllib.parse import urldefrag, urlsplit

from pyspider_lite import BaseHandler

START = "http://127.0.0.1:8000/"


class Handler(BaseHandler):
    crawl_config = {"retries": 0}  # a dead link is told at once, not after hours

    def on_start(self):
        self.crawl(START, callback=self.page)

    def page(self, response):
        if "html" not in response.headers.get("Content-Type", "html"):
            return None
        for link in response.doc("a[href]").items():
            url = urldefrag(link.attr.href).url
            if urlsplit(url).scheme in ("http", "https") and urlsplit(url).netloc == urlsplit(START).netloc:
                self.crawl(url, callback=self.page)
        return {"title": response.doc("title").text()}
