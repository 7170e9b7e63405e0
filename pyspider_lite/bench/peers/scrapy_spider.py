"""Scrapy with one process and queues in memory, as it is by default."""

import os

import scrapy
from scrapy.crawler import CrawlerProcess

START = os.environ["START_URL"]
CONCURRENCY = int(os.environ["CONCURRENCY"])


class Pages(scrapy.Spider):
    name = "pages"

    async def start(self):
        # start_urls would not be remembered as seen
        yield scrapy.Request(START)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for href in response.css("a::attr(href)").getall():
            link = response.urljoin(href)
            if link.startswith(START.rpartition("/")[0]):
                yield scrapy.Request(link, callback=self.parse)


process = CrawlerProcess(
    {
        "CONCURRENT_REQUESTS": CONCURRENCY,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "FEEDS": {"out.jsonl": {"format": "jsonlines"}},
    }
)
process.crawl(Pages)
process.start()
