#!/usr/bin/env python
# -*- encoding: utf-8 -*-
# Created on 2015-03-12 10:21:44
# Project: list_detail

from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    crawl_config = {
    }

    @every(minutes=24 * 60)
    def on_start(self):
        self.crawl('http://127.0.0.1:18080/list/1', callback=self.index_page)

    @config(age=10 * 24 * 60 * 60)
    def index_page(self, response):
        for each in response.doc('a.item[href^="http"]').items():
            self.crawl(each.attr.href, callback=self.detail_page)
        self.crawl(response.doc('a.next').attr.href, callback=self.index_page)

    @config(priority=2)
    def detail_page(self, response):
        return {
            "url": response.url,
            "title": response.doc('title').text(),
            "price": float(response.doc('.price').text().replace('$', '')),
            "tags": [tag.text() for tag in response.doc('ul.tags > li').items()],
        }
