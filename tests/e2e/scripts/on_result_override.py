import os
import sqlite3
from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Keeps its results in a database of its own, and only the dear ones in ours as well."""

    def __init__(self):
        self.path = os.path.join('FOLDER', 'own_results.db')
        self.connection = None

    def connect(self):
        if self.connection is None:
            self.connection = sqlite3.connect(self.path, timeout=20)
            self.connection.execute('create table if not exists items (url text primary key, title text, price real)')
        return self.connection

    def on_start(self):
        for i in range(1, 12):
            self.crawl('http://127.0.0.1:18080/item/%d' % i, callback=self.detail_page)

    def detail_page(self, response):
        return {'url': response.url, 'title': response.doc('h1').text(), 'price': float(response.doc('.price').text()[1:])}

    def on_result(self, result):
        if not result:
            return
        if 'price' in result:
            db = self.connect()
            with db:
                db.execute('insert or replace into items values (?, ?, ?)', (result['url'], result['title'], result['price']))
            if result['price'] < 9:
                return
        super(Handler, self).on_result(result)

    def on_finished(self, response, task):
        rows = self.connect().execute('select count(*), sum(price) from items').fetchone()
        return {'rows': rows[0], 'sum': rows[1]}
