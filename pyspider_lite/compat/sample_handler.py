"""The script that pyspider offered for a new project, as a module (``pyspider.libs.sample_handler``)."""

from typing import Any, ClassVar

from pyspider_lite.handler import BaseHandler, config, every


class Handler(BaseHandler):
    """Crawls a page and all it links to, once a day."""

    crawl_config: ClassVar[dict[str, Any]] = {}

    @every(minutes=24 * 60)
    def on_start(self) -> None:
        """Enter the first page."""
        self.crawl("__START_URL__", callback=self.index_page)

    @config(age=10 * 24 * 60 * 60)
    def index_page(self, response: Any) -> None:
        """Enter what it links to."""
        for each in response.doc('a[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.detail_page)

    @config(priority=2)
    def detail_page(self, response: Any) -> dict[str, Any]:
        """The result."""
        return {"url": response.url, "title": response.doc("title").text()}
