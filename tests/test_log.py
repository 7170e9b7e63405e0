import json
import logging
import re

import pytest

from pyspider_lite import log
from pyspider_lite.errors import ConfigError


def line(message: str, *arguments: object, **more: object) -> str:
    record = logging.LogRecord("x", logging.WARNING, "/a/fetcher.py", 12, message, arguments, None)
    record.__dict__.update(more)
    return log.LogFormatter(color=False).format(record)


@pytest.mark.behaviour("C7")
def test_the_format_of_a_line():
    assert re.fullmatch(r"\[W \d{6} \d\d:\d\d:\d\d fetcher:12\] 3 pages", line("%d pages", 3))


@pytest.mark.behaviour("C7")
def test_continuation_lines_and_tracebacks_are_indented():
    assert line("a\nb").endswith("] a\n    b")
    try:
        raise ValueError("no")
    except ValueError as error:
        text = line("failed", exc_info=(type(error), error, error.__traceback__))
    assert "] failed\n    Traceback (most recent call last):\n" in text
    assert text.endswith("\n    ValueError: no")


FORGED = "a\x1b]0;x\x07\x9b2J\u202eb\u2066\x7f\rc"


def test_control_characters_of_names_are_escaped_in_the_log():
    text = line("%s: first\n\tsecond", FORGED)
    assert text.endswith("] a\\u001b]0;x\\u0007\\u009b2J\\u202eb\\u2066\\u007f\\u000dc: first\n    \tsecond")


def test_what_is_printed_is_one_line_without_control_characters():
    shown = log.printable(f"{FORGED}\n\t\ud800é中 \U0001f600")
    assert shown.endswith("c\\u000a\\u0009\\ud800é中 \U0001f600")
    assert shown.isprintable()
    assert json.loads(log.printable(json.dumps(FORGED, ensure_ascii=False))) == FORGED


def test_a_wrong_format_does_not_lose_the_line():
    assert "'%d pages'" in line("%d pages", "x")


@pytest.mark.behaviour("X-X9")
@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("mysql://root:secret@db:3306/x", "mysql://root:***@db:3306/x"),
        ("redis://:secret@h/0", "redis://:***@h/0"),
        ("sqlalchemy+mysql+pymysql+taskdb://u:a@b/c:d@h/x", "sqlalchemy+mysql+pymysql+taskdb://u:***@h/x"),
        ("first amqp://a:b@h, then 'amqp://c:d@h'", "first amqp://a:***@h, then 'amqp://c:***@h'"),
        ("http://host:8080/@user?mail=a@b", "http://host:8080/@user?mail=a@b"),
        ("http://user@host/", "http://user@host/"),
        ("at amqp://a:it's@h and amqp://c:\"d@h", "at amqp://a:***@h and amqp://c:***@h"),
        ("kombu+redis://h/0?password=x&db=1 is", "kombu+redis://h/0?password=***&db=1 is"),
    ],
)
def test_passwords_are_masked(text, shown):
    assert log.mask_url(text) == shown
    assert line("at %s", text).endswith("at " + shown)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("mysql+taskdb://u:p@ss:w/rd@h/db", "mysql+taskdb://u:***@h/db"),
        ("mysql+taskdb://u:12345/6 ' 7@h/db", "mysql+taskdb://u:***@h/db"),
        ("mysql+taskdb://u@h/db", "mysql+taskdb://u@h/db"),
        ("sqlite+taskdb:////a/b@c:d.db", "sqlite+taskdb:////a/b@c:d.db"),
        ("redis://h:6379/0", "redis://h:6379/0"),
        ("amqp://user:pw@h/v", "amqp://user:***@h/v"),
        ("sentinel://:a@h1:1;sentinel://:b@h2:2", "sentinel://:***@h2:2"),
        ("redis://h/0?Password=x&db=1", "redis://h/0?Password=***&db=1"),
    ],
)
def test_the_password_of_one_url_is_masked(url, shown):
    assert log.mask_url(url, alone=True) == shown


MALFORMED = {
    "redis://SECRET@192.168.1.3:6379/0": "redis://***@192.168.1.3:6379/0",
    "pyspider:SECRET@host": "***@host",
    "mysql+taskdb:/u:SECRET@h": "***@h",
    "mysql+taskdb//u:SECRET@h": "***@h",
    "mysql+taskdb:u:SECRET@h": "***@h",
    "//u:SECRET@h": "***@h",
    "mysql+taskdb:///u:SECRET@h": "mysql+taskdb://***@h",
    "mysql+taskdb://u:SECRET": "mysql+taskdb://u:***",
    "mysql+taskdb://u@SECRET@h": "mysql+taskdb://***@h",
    "sqlalchemy+postgresql+taskdb://u@SECRET@h/d": "sqlalchemy+postgresql+taskdb://***@h/d",
    "redis//:SECRET@h": "***@h",
    "redis:/:SECRET@h": "***@h",
    "redis://:SECRET": "redis://:***",
    "SECRET@h:6379": "***@h:6379",
    ":SECRET@h:6379": "***@h:6379",
    ":SECRET@h1,h2": "***@h1,h2",
    "amqp:u:SECRET@h": "***@h",
    "u:SECRET://x@h": "***@h",
    "redis://h/0?password=SEC@SECRET": "redis://h/0?password=***",
    # of digits, as a port is
    "redis://12345@h:6379/0": "redis://***@h:6379/0",
    "pyspider:12345@host": "***@host",
    "//u:12345@h": "***@h",
    "mysql+taskdb:u:12345": "mysql+taskdb:u:***",
    "mysql+taskdb:/u:12345": "mysql+taskdb:/u:***",
    "mysql+taskdb://u:12345:h": "mysql+taskdb://u:***",
    "redis://h:6379/0:12345": "redis://h:6379/0:***",
    "redis://h1:6379,h2:6379:12345": "redis://h1:6379,h2:6379:***",
}


@pytest.mark.parametrize(("url", "shown"), list(MALFORMED.items()))
def test_the_password_of_a_malformed_url_is_masked(url, shown):
    assert log.mask_url(url, alone=True) == shown


@pytest.mark.parametrize(
    "url",
    [
        "redis://[::1]:6379/0",
        "sentinel://h1:1;sentinel://h2:2/0?master_name=m",
        "builtin:///tmp/a@b:c/queue.sock",
        "redis+socket:///tmp/a@b",
        "redis://h1:6379,h2:6379",
        "http://127.0.0.1:23333/",
        "mysql+taskdb://h:/db",
        "redis://h:12345",
        "sentinel://[::1]:1;sentinel://[::2]:2/0",
    ],
)
def test_a_url_without_a_password_is_shown(url):
    assert log.mask_url(url, alone=True) == url


def test_a_password_in_a_traceback_is_masked():
    try:
        raise ValueError("mysql://root:secret@db/")
    except ValueError as error:
        assert "secret" not in line("failed", exc_info=(type(error), error, error.__traceback__))


@pytest.mark.behaviour("C11", "C6")
def test_an_ini_file_decides_and_may_name_our_formatter(tmp_path, capfd):
    ini = tmp_path / "logging.conf"
    ini.write_text(
        "[loggers]\nkeys=root\n[handlers]\nkeys=screen\n[formatters]\nkeys=ours\n"
        "[logger_root]\nlevel=ERROR\nhandlers=screen\n"
        "[handler_screen]\nclass=StreamHandler\nformatter=ours\nargs=(sys.stderr,)\n"
        "[formatter_ours]\nclass=pyspider_lite.log.LogFormatter\n"
    )
    log.setup(str(ini))
    logging.getLogger(__name__).warning("not this")
    logging.getLogger(__name__).error("but this")
    assert "but this" in (err := capfd.readouterr().err)
    assert "not this" not in err


def test_an_ini_file_that_is_none(tmp_path):
    ini = tmp_path / "logging.conf"
    ini.write_text("[loggers")
    with pytest.raises(ConfigError, match="not usable as logging configuration"):
        log.setup(str(ini))


@pytest.mark.parametrize(("options", "levels"), [({}, "IW"), ({"debug": True}, "DIW"), ({"quiet": True}, "W")])
def test_levels(options, levels, capfd):
    log.setup(**options)
    for level in (logging.DEBUG, logging.INFO, logging.WARNING):
        logging.getLogger(__name__).log(level, "said")
    assert re.findall(r"\[(\w) ", capfd.readouterr().err) == list(levels)
