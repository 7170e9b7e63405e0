from pyspider.libs.base_handler import *
from projects import common_tools
from projects.common_tools import Base, parse_item


class Handler(Base):
    def on_start(self):
        for i in range(30, 41):
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.item_page if i % 2 else self.other)

    def other(self, response):
        return dict(parse_item(response), other=True, module=common_tools.__name__)
