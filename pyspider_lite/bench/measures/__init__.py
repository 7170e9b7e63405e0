"""What is not speed: `bench --measure NAME`. One module a measure, each with `subjects`, which are played by `rounds`."""

from pyspider_lite.bench import site

_SCRIPT = """from pyspider_lite import BaseHandler

class Handler(BaseHandler):
    def on_start(self):
        for number in range({first}, {end}):
            self.crawl("{root}/%d.html" % number, callback=self.page)

    def page(self, response):
        return {{"url": response.url}}
"""


def list_of_pages(served: site.Site, first: int, end: int) -> str:
    """A script whose on_start submits these pages; they lead to nothing."""
    return _SCRIPT.format(root=served.url.rpartition("/")[0], first=first, end=end)
