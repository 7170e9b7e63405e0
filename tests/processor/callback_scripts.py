"""Scripts that the tests of the processor run, and what came of them."""

import textwrap
from pathlib import Path

HEAD = "import os, sys, time, signal, subprocess, threading\nfrom pyspider_lite.handler import *\nclass Handler(BaseHandler):\n"


def script(body: str) -> str:
    """A project with these methods."""
    return HEAD + textwrap.indent(textwrap.dedent(body), "    ")


def process(report):
    return report.track["process"]


def gone(pid: int) -> bool:
    """No such process, or only its zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except OSError:
        return True


OK = script("""
    def cb(self, response):
        print("seen")
        self.save["n"] = self.save.get("n", 0) + 1
        self.crawl("http://a.test/1", callback=self.cb, priority=2)
        self.send_message("other", {"m": 1})
        return {"title": response.etree.findtext(".//title")}

    def quiet(self, response):
        pass

    def pid(self, response):
        return {"pid": os.getpid()}
""")


LOOPS = script("""
    def cb(self, response):
        while True:
            pass

    def gen(self, response):
        yield {"i": 1}
        time.sleep(60)

    def deaf(self, response):
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(60)

    def stubborn(self, response):
        while True:
            try:
                time.sleep(60)
            except Exception:
                pass

    def regex(self, response):
        import re
        re.match(r"(a*)*b", "a" * 40)

    def caught(self, response):
        try:
            time.sleep(60)
        except TimeoutError as error:
            return {"late": str(error)}
""")
