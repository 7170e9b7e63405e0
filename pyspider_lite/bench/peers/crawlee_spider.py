"""crawlee's HttpCrawler, with everything in memory and parsel by hand: the fastest peer."""

import asyncio
import json
import logging
import os
from urllib.parse import urljoin

from crawlee import ConcurrencySettings
from crawlee.crawlers import HttpCrawler
from crawlee.storage_clients import MemoryStorageClient
from parsel import Selector

START = os.environ["START_URL"]
CONCURRENCY = int(os.environ["CONCURRENCY"])


async def main():
    crawler = HttpCrawler(
        concurrency_settings=ConcurrencySettings(
            min_concurrency=CONCURRENCY, desired_concurrency=CONCURRENCY, max_concurrency=CONCURRENCY
        ),
        storage_client=MemoryStorageClient(),
        configure_logging=False,
        use_session_pool=False,
    )

    @crawler.router.default_handler
    async def page(context):
        selector = Selector((await context.http_response.read()).decode())
        await context.push_data({"url": context.request.url, "title": selector.css("title::text").get()})
        links = [urljoin(context.request.url, href) for href in selector.css("a::attr(href)").getall()]
        await context.add_requests([link for link in links if link.startswith(START.rpartition("/")[0])])

    await crawler.run([START])
    await crawler.export_data("export.json")
    with open("export.json") as rows, open("out.jsonl", "w") as out:
        out.writelines(json.dumps(row) + "\n" for row in json.load(rows))


logging.getLogger().setLevel(logging.WARNING)
asyncio.run(main())
