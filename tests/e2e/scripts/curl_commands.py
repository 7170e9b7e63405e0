from pyspider.libs.base_handler import *


class Handler(BaseHandler):
    """Requests pasted from the browser's developer tools."""

    def on_start(self):
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=1' -H 'Accept-Language: de' -H 'X-Token: a b' --compressed", callback=self.echo)
        self.crawl("""curl 'http://127.0.0.1:18080/echo?a=2' \\
  -H 'Content-Type: application/x-www-form-urlencoded; charset=UTF-8' \\
  --data-raw 'q=%E4%B8%AD&page=2' \\
  --compressed""", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=3' -X PUT -H 'Content-Type: text/plain' -d 'x=1' -d 'y=2'", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=4' -b 'sid=abc; theme=dark'", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=5' -H 'Content-Type: application/json' --data-binary '{\"n\": [1, 2]}'", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=6' --data-raw $'name=\\u4e2d\\'s'", callback=self.echo)
        self.crawl("curl http://127.0.0.1:18080/echo?a=7 http://127.0.0.1:18080/echo?a=8", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=9' -XDELETE", callback=self.echo)
        self.crawl("curl 'http://127.0.0.1:18080/echo?a=10' -H 'User-Agent: Mozilla/5.0 (X11)'", callback=self.echo, headers={'X-Token': 'call'})

    def echo(self, response):
        seen = response.json
        wanted = ('Accept-Language', 'X-Token', 'Content-Type', 'Cookie')
        return {'method': seen['method'], 'body': seen['body'], 'query': seen['query'],
                'headers': {k: seen['headers'][k] for k in wanted if k in seen['headers']}}
