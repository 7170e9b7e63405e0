"""Scripts become handlers: which class, which logger, which version, and other projects' scripts as modules."""

import itertools
import logging
import sys

import pytest

from pyspider_lite.models.project import Project
from pyspider_lite.processor import project_loader
from pyspider_lite.processor.pipe import Script
from pyspider_lite.processor.project_loader import ProjectLoader
from pyspider_lite.processor.scripts import script_md5

HEAD = "from pyspider_lite.handler import *\n"
PLAIN = HEAD + "class Handler(BaseHandler):\n    pass\n"


class Records(logging.Handler):
    def __init__(self):
        super().__init__()
        self.lines = []

    def emit(self, record):
        self.lines.append((record.levelname, record.getMessage()))


class Store:
    """Answers as the processor does, and notes the questions."""

    def __init__(self):
        self.scripts = {}
        self.asked = []
        self.log = Records()
        self.loader = ProjectLoader(self.ask, self.log, {"debug": False})

    def ask(self, name, md5, known):
        self.asked.append((name, md5))
        script = self.scripts.get(name)
        if script is None:
            return Script()
        newest = script_md5(script)
        return Script(md5=newest, project=None if newest == known else Project(name=name, script=script))

    def load(self, script, name="p", md5=None):
        self.scripts[name] = script
        return self.loader.get(name, script_md5(script) if md5 is None else md5)


@pytest.fixture
def store(monkeypatch):
    monkeypatch.setattr(sys, "meta_path", list(sys.meta_path))
    made = Store()
    yield made
    for name in [name for name in sys.modules if name.partition(".")[0] == "projects"]:
        del sys.modules[name]


def test_the_last_subclass_is_the_handler(store):
    loaded = store.load(PLAIN + "class A(Handler):\n    pass\nclass B(Handler):\n    pass\nC = 1\n")
    assert type(loaded.handler).__name__ == "B"
    chosen = store.load(PLAIN + "class B(Handler):\n    pass\n__handler_cls__ = Handler\n", "q")
    assert type(chosen.handler).__name__ == "Handler"


def test_a_base_of_the_script_is_no_project(store):
    with pytest.raises(AssertionError, match="need BaseHandler in project module"):
        store.load(HEAD)
    with pytest.raises(AssertionError, match="no such project!"):
        store.loader.get("nobody")


@pytest.mark.behaviour("H10", "H12", "P14", "H1")
def test_what_module_and_handler_know(store):
    script = HEAD + "class Handler(BaseHandler):\n    def __init__(self):\n        self.seen = self.project_name\n"
    loaded = store.load(script)
    handler, names = loaded.handler, loaded.module.__dict__
    assert (names["__name__"], names["__file__"], names["__package__"]) == ("p", "<p>", "")
    assert names["__project__"] is handler.project and handler.project["md5sum"] == script_md5(script)
    assert handler.seen == handler.project_name == "p"
    assert handler.__env__ == {"debug": False}
    assert "p" not in sys.modules


def test_logger_and_logging_are_the_projects(store):
    loaded = store.load(
        "import logging\nouter = logging.getLogger('x')\n" + HEAD + "class Handler(BaseHandler):\n"
        "    def cb(self):\n"
        "        logger.info('one %d', 1)\n"
        "        logging.warning('two')\n"
        "        self.logger.debug('three')\n"
        "        logging.getLogger('y')\n"
        "        return logging.INFO, logging.Formatter\n"
    )
    assert loaded.handler.cb() == (logging.INFO, logging.Formatter)
    assert store.log.lines == [("INFO", "one 1"), ("WARNING", "two"), ("DEBUG", "three")]


@pytest.mark.behaviour("X-P8")
def test_each_version_is_executed_once(store):
    first = store.load(PLAIN)
    assert store.load(PLAIN) is first
    second = store.load(PLAIN + "# edited\n")
    assert second is not first
    assert store.loader.get("p", first.md5) is first
    assert len(store.asked) == 2


def test_a_version_that_is_gone_is_looked_for_again_after_a_while(store, monkeypatch):
    newest = store.load(PLAIN, md5="gone")
    assert store.loader.get("p", "gone") is newest and len(store.asked) == 1
    now = itertools.count(project_loader.time.monotonic() + 10)
    monkeypatch.setattr(project_loader.time, "monotonic", lambda: next(now))
    assert store.loader.get("p", "gone") is newest and len(store.asked) == 2
    store.scripts["p"] = PLAIN + "# edited\n"
    now = itertools.count(next(now) + 10)
    assert store.loader.get("p", "gone") is not newest


def test_versions_kept_are_bounded(store, monkeypatch):
    monkeypatch.setattr(project_loader, "KEPT", 3)
    for number in range(5):
        store.load(PLAIN, f"p{number}")
    asked = len(store.asked)
    store.load(PLAIN, "p4")
    assert len(store.asked) == asked
    store.load(PLAIN, "p0")
    assert len(store.asked) == asked + 1


@pytest.mark.behaviour("H7")
def test_scripts_of_other_projects_are_modules(store):
    store.scripts["shared"] = "VALUE = 1\n"
    loaded = store.load("from projects import shared\nfrom projects.shared import VALUE\n" + PLAIN)
    assert loaded.module.shared.VALUE == loaded.module.VALUE == 1
    assert set(loaded.imports) == {"shared"}
    with pytest.raises(ModuleNotFoundError, match="no project named 'nobody'"):
        store.load("import projects.nobody\n" + PLAIN, "q")


@pytest.mark.behaviour("H7", "X-P9")
def test_an_edit_of_an_imported_project_takes_effect(store, monkeypatch):
    now = [project_loader.time.monotonic()]
    monkeypatch.setattr(project_loader.time, "monotonic", lambda: now[0])
    store.scripts["shared"] = "VALUE = 1\n"
    script = "from projects import shared\n" + PLAIN
    first = store.load(script)
    store.scripts["shared"] = "VALUE = 2\n"
    assert store.load(script) is first
    now[0] += 10
    second = store.load(script)
    assert (first.module.shared.VALUE, second.module.shared.VALUE) == (1, 2)
    now[0] += 10
    assert store.load(script) is second


def test_an_import_inside_a_callback_is_the_version_of_its_project(store):
    store.scripts["shared"] = "VALUE = 1\n"
    script = (
        HEAD
        + "class Handler(BaseHandler):\n    def cb(self):\n        from projects.shared import VALUE\n        return VALUE\n"
    )
    first = store.load(script)
    assert first.handler.cb() == 1
    store.scripts["shared"] = "VALUE = 2\n"
    second = store.load(script, "q")
    assert second.handler.cb() == 2
    assert store.load(script).handler.cb() == 1


def test_a_script_that_fails_halfway_is_tried_again(store):
    store.scripts["flag"] = "raise ValueError('not yet')\n"
    script = "import projects.flag\n" + PLAIN
    with pytest.raises(ValueError, match="not yet"):
        store.load(script)
    store.scripts["flag"] = "\n"
    assert store.load(script).handler
