#!/usr/bin/env python
# -*- encoding: utf-8 -*-
# vim: set et sw=4 ts=4 sts=4 ff=unix fenc=utf8:
# names that were never imported but always there
from libs.base_handler import *
from six.moves.urllib.parse import urljoin, urlparse, parse_qs


@six.add_metaclass(BaseHandlerMeta)
class Handler(BaseHandler):
    def on_start(self):
        for key, value in six.iteritems({'a': 1, 'b': 2, 'c': 3, 'd': 4, 'e': 5, 'f': 6, 'g': 7, 'h': 8, 'i': 9, 'j': 10}):
            self.crawl(urljoin('http://127.0.0.1:18080/item/', str(value)), callback=self.page, save={'key': key},
                       taskid=md5string('letter ' + key))

    def page(self, response):
        assert sys.version_info[0] == 3 and inspect.ismethod(self.page) and functools.partial
        logger.info('page %s', response.save['key'])
        logging.warning('the root logger is the script\'s')
        print(u'页 %s' % response.url)
        text = response.doc('h1').text()
        assert isinstance(text, six.string_types) and isinstance(text, six.text_type)
        return {'key': response.save['key'], 'title': text, 'path': urlparse(response.url).path,
                'md5': md5string(text), 'taskid': self.task['taskid'] == md5string('letter ' + response.save['key']),
                'escaped': quote_chinese(u'http://a/中'), 'query': parse_qs('a=1&a=2')}
