"""scrapy-redis: one of several processes that share their queue and the set of seen links in Redis."""

import os

import redis
import scrapy
from scrapy.crawler import CrawlerProcess
from scrapy_redis.spiders import RedisSpider

START = os.environ["START_URL"]
CONCURRENCY = int(os.environ["CONCURRENCY"])
KEY = "pages:start_urls"


class Pages(RedisSpider):
    name = "pages"
    redis_key = KEY

    def make_request_from_data(self, data):
        made = super().make_request_from_data(data)
        # as it is made, it would not be remembered as seen, and come twice
        return (made[0] if isinstance(made, list) else made).replace(dont_filter=False)

    def parse(self, response):
        yield {"url": response.url, "title": response.css("title::text").get()}
        for href in response.css("a::attr(href)").getall():
            link = response.urljoin(href)
            if link.startswith(START.rpartition("/")[0]):
                yield scrapy.Request(link, callback=self.parse)


worker = os.environ["WORKER"]
if worker == "0":
    redis.from_url(os.environ["REDIS_URL"]).lpush(KEY, START)
process = CrawlerProcess(
    {
        "SCHEDULER": "scrapy_redis.scheduler.Scheduler",
        "DUPEFILTER_CLASS": "scrapy_redis.dupefilter.RFPDupeFilter",
        "SCHEDULER_PERSIST": True,
        "REDIS_URL": os.environ["REDIS_URL"],
        "MAX_IDLE_TIME_BEFORE_CLOSE": 3,
        "CONCURRENT_REQUESTS": CONCURRENCY,
        "CONCURRENT_REQUESTS_PER_DOMAIN": CONCURRENCY,
        "DOWNLOAD_DELAY": 0,
        "ROBOTSTXT_OBEY": False,
        "LOG_LEVEL": "WARNING",
        "TELNETCONSOLE_ENABLED": False,
        "COOKIES_ENABLED": False,
        "FEEDS": {f"out-{worker}.jsonl": {"format": "jsonlines"}},
    }
)
process.crawl(Pages)
process.start()
