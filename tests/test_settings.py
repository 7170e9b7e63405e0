import json
import math
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pyspider_lite import configuration, settings
from pyspider_lite.errors import ConfigError

ROOT = Path(__file__).parent.parent


@pytest.fixture
def load(tmp_path: Path) -> Any:
    """settings.load of a config.json with this content."""

    def call(config: Any = None, overrides: Any = None, environ: Any = None) -> configuration.Loaded:
        file = None
        if config is not None:
            path = tmp_path / "config.json"
            path.write_text(config if isinstance(config, str) else json.dumps(config), "utf-8")
            file = str(path)
        return configuration.load(file, overrides or {}, environ or {})

    return call


@pytest.mark.behaviour("C72")
@pytest.mark.parametrize(
    ("given", "config", "environ", "expected"),
    [
        (None, None, None, 100),
        (None, None, "55", 55),
        (None, 7, "55", 7),
        (None, "7", "55", 7),
        (3, 7, "55", 3),
        ("3", None, "55", 3),
        ("3", 7, None, 3),
        (None, 7, None, 7),
        (0, 7, "55", 0),
        (None, None, "", 100),
    ],
)
def test_the_command_line_beats_the_file_beats_the_environment(load, given, config, environ, expected):
    loaded = load(
        {} if config is None else {"queue-maxsize": config},
        {} if given is None else {"queue_maxsize": given},
        {} if environ is None else {"QUEUE_MAXSIZE": environ},
    )
    assert loaded.settings.queue_maxsize == expected
    assert loaded.warnings == []


@pytest.mark.behaviour("C70", "C71")
def test_a_hyphen_is_an_underscore_at_every_depth(load):
    loaded = load({"data-path": "/x", "result-worker": {"result-cls": "my.Worker"}, "fetcher": {"user_agent": "a-b"}})
    assert loaded.settings.data_path == "/x"
    assert loaded.settings.result_worker.result_cls == "my.Worker"
    assert loaded.settings.fetcher.user_agent == "a-b"
    assert loaded.warnings == []


@pytest.mark.behaviour("C73", "C87")
def test_variables_of_a_section_count_and_those_of_linked_containers_do_not(load):
    assert load(environ={"SCHEDULER_XMLRPC_PORT": "1234"}).settings.scheduler.xmlrpc_port == 1234
    assert load(environ={"SCHEDULER_XMLRPC_PORT": "tcp://10.0.0.1:23333"}).settings.scheduler.xmlrpc_port is None


@pytest.mark.behaviour("C76", "X-F6", "X-C1")
def test_numbers_may_be_text_and_text_a_number(load):
    loaded = load({"fetcher": {"timeout": " 12.5 ", "proxy": 8080, "no-xmlrpc": "true"}, "rpc-secret": 1234})
    assert loaded.settings.fetcher.timeout == 12.5
    assert loaded.settings.fetcher.proxy == "8080"
    assert loaded.settings.fetcher.no_xmlrpc is True
    assert loaded.settings.rpc_secret == "1234"


def test_null_is_not_set(load):
    assert load({"queue_maxsize": None}, environ={"QUEUE_MAXSIZE": "5"}).settings.queue_maxsize == 5


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"queue_maxsise": 1}, "unknown key queue_maxsise is ignored; did you mean queue_maxsize?"),
        ({"fetcher": {"pol-size": 1}}, "unknown key fetcher.pol_size is ignored; did you mean fetcher.poolsize?"),
        ({"poolsize": 1}, "unknown key poolsize is ignored; did you mean fetcher.poolsize?"),
        ({"schedular": {"delete_time": 1}}, "unknown key schedular is ignored; did you mean scheduler?"),
        ({"zzzz": 1}, "unknown key zzzz is ignored"),
    ],
)
@pytest.mark.behaviour("C75")
def test_an_unknown_key_is_one_warning_with_the_nearest_known_one(load, config, said):
    loaded = load(config)
    assert len(loaded.warnings) == 1
    assert loaded.warnings[0].endswith(f"config.json: {said}")


@pytest.mark.parametrize(
    "config",
    [
        {"beanstalk": "host"},
        {"scheduler": {"threads": 4}},
        {"scheduler": {"loop-limit": 1000}},
        {"scheduler": {"xmlrpc": True}},
        {"fetcher": {"splash-endpoint": "http://x"}},
        {"all": {"run-in": "thread"}},
        {"webui": {"username": "a", "need-auth": True}},
        {"phantomjs": {"port": 1}},
        {"bench": {"total": 1}},
    ],
)
def test_what_pyspider_had_is_one_warning(load, config):
    loaded = load(config)
    assert len(loaded.warnings) == 1
    assert "is ignored: " in loaded.warnings[0]
    assert "unknown" not in loaded.warnings[0]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ('{"queue-maxsize": ' + "9" * 5000 + "}", ": a number in it is too long"),
        ("{", ": not JSON: line 1, column 2: Expecting property name enclosed in double quotes"),
        ("[]", ": expected one JSON object, got []"),
        ({"fetcher": 3}, ": fetcher: expected an object with the options of fetcher, got 3"),
        ({"fetcher": {"poolsize": "many"}}, ': fetcher.poolsize: expected a whole number from 1 to 10000, got "many"'),
        ({"fetcher": {"poolsize": 0}}, ": fetcher.poolsize: expected a whole number from 1 to 10000, got 0"),
        ({"fetcher": {"poolsize": 1.5}}, ": fetcher.poolsize: expected a whole number from 1 to 10000, got 1.5"),
        ({"fetcher": {"poolsize": True}}, ": fetcher.poolsize: expected a whole number from 1 to 10000, got true"),
        ({"fetcher": {"timeout": 0}}, ": fetcher.timeout: expected a number above 0, got 0"),
        ({"fetcher": {"timeout": "nan"}}, ': fetcher.timeout: expected a number above 0, got "nan"'),
        ({"debug": "maybe"}, ': debug: expected true or false, got "maybe"'),
        ({"taskdb": ["x"]}, ": taskdb: expected text, got a list, not shown as it may hold a password"),
        ({"queue-maxsize": -1}, ": queue_maxsize: expected a whole number of at least 0, got -1"),
    ],
)
def test_a_wrong_value_is_named_with_its_file_and_place(load, config, said):
    with pytest.raises(ConfigError) as raised:
        load(config)
    assert str(raised.value).endswith("config.json" + said)


def test_a_wrong_value_of_the_command_line_or_the_environment_is_named(load):
    with pytest.raises(ConfigError, match=r"^--poolsize: expected a whole number from 1 to 10000, got \"x\"$"):
        load(overrides={"fetcher": {"poolsize": "x"}})
    with pytest.raises(
        ConfigError, match=r"^environment variable QUEUE_MAXSIZE: expected a whole number of at least 0"
    ):
        load(environ={"QUEUE_MAXSIZE": "x"})


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        configuration.load(str(tmp_path / "none.json"), {}, {})
    (tmp_path / "latin.json").write_bytes(b'{"data-path": "\xe4"}')
    with pytest.raises(ConfigError, match="not UTF-8 text"):
        configuration.load(str(tmp_path / "latin.json"), {}, {})


@pytest.mark.behaviour("C90")
@pytest.mark.parametrize(
    ("data_path", "url"),
    [
        ("./data", "sqlite+taskdb:///./data/task.db"),
        ("/var/x/", "sqlite+taskdb:////var/x/task.db"),
        ("/", "sqlite+taskdb:////task.db"),
    ],
)
def test_databases_are_files_in_the_data_path(load, data_path, url):
    loaded = load({"data_path": data_path}).settings
    assert loaded.taskdb == url
    assert settings.sqlite_file(url) == f"{data_path.rstrip('/')}/task.db"
    assert settings.sqlite_file("mysql+taskdb://h/d") is None
    assert settings.sqlite_file("sqlite+taskdb://") is None


@pytest.mark.behaviour("C80", "C83", "C18")
def test_linked_containers_and_the_old_name_of_the_queue(load):
    linked = {
        "MYSQL_NAME": "/a/mysql",
        "MYSQL_PORT_3306_TCP_ADDR": "db",
        "MYSQL_PORT_3306_TCP_PORT": "3306",
        "RABBITMQ_NAME": "/a/rabbitmq",
        "RABBITMQ_PORT_5672_TCP_ADDR": "mq",
        "RABBITMQ_PORT_5672_TCP_PORT": "5672",
    }
    found = load({"resultdb": "sqlite+resultdb:///r.db"}, environ=linked).settings
    assert found.taskdb == "sqlalchemy+mysql+taskdb://db:3306/taskdb"
    assert found.resultdb == "sqlite+resultdb:///r.db"
    assert found.message_queue == "amqp://guest:guest@mq:5672/%2F"
    loaded = load({"amqp-url": "amqp://old"}, environ=linked)
    assert loaded.settings.message_queue == "amqp://old"
    assert loaded.warnings == ["amqp_url is the old name of message_queue"]
    assert load({"amqp-url": "amqp://old", "message-queue": "amqp://new"}).settings.message_queue == "amqp://new"


@pytest.mark.parametrize(
    ("text", "rate"), [("1", 1), ("0.5", 0.5), (0, 0), ("unlimited", math.inf), (" Unlimited", math.inf)]
)
def test_rates(text, rate):
    assert configuration.parse_rate(text, "--rate") == rate


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "", "fast"])
def test_what_is_no_rate(text):
    with pytest.raises(ConfigError, match='--rate: expected a number of at least 0 or "unlimited"'):
        configuration.parse_rate(text, "--rate")


@pytest.mark.behaviour("C78")
def test_the_example_has_every_option_with_its_default_and_loads():
    example = ROOT / "config.example.json"
    loaded = configuration.load(str(example), {}, {})
    assert loaded.warnings == []
    assert msgspec.to_builtins(loaded.settings) == msgspec.to_builtins(configuration.load(None, {}, {}).settings)
    shown = json.loads(example.read_text("utf-8"))
    for section in settings.SECTIONS:
        keys = {key.replace("-", "_") for key, value in (shown[section] if section else shown).items()}
        assert keys - set(settings.SECTIONS) == {one.name for one in settings.options(section)}, section


def test_settings_survive_the_pipe_to_a_child(load):
    one = load({"fetcher": {"poolsize": 3, "xmlrpc_port": 5}, "all": {"fetcher_num": 2}}).settings
    other = msgspec.json.decode(msgspec.json.encode(one), type=settings.Settings)
    assert other == one
    assert other.digest == one.digest


def test_the_digest_is_of_what_machines_share(load):
    plain = load().settings
    assert load({"fetcher": {"poolsize": 3}, "drain_timeout": 5, "debug": True}).settings.digest == plain.digest
    for shared in ({"resultdb": "sqlite+resultdb:///x.db"}, {"queue_prefix": "x."}, {"message_queue": "redis://h/0"}):
        assert load(shared).settings.digest != plain.digest
    changed = [load({"taskdb": f"mysql+taskdb://u:{password}@h/task"}).settings.digest for password in ("old", "n@w")]
    assert changed[0] == changed[1] != load({"taskdb": "mysql+taskdb://u:old@h/other"}).settings.digest


@pytest.mark.parametrize(
    "ways",
    [
        ["redis://h:6379/0", "redis://h:6379/db", "redis://h", "redis://h/", "kombu+redis://h/00"],
        ["redis://:p@h:6379/1", "redis://:p@h/1/"],
        ["redis://[::1]/0", "redis://[::1]:6379/db"],
        ["amqp://u:p@h:5672//", "amqp://u:p@h", "amqp://u:p@h/%2F", "amqp://u:p@h/"],
        ["amqp://h/a/b", "amqp://h/a%2Fb"],
        ["redis://h/2?db=1"],
        ["amqp://u:old@h//", "amqp://u:n%40w@h//"],
    ],
)
def test_the_digest_is_the_same_for_each_way_to_write_a_broker(load, ways):
    digests = {load({"message_queue": way}).settings.digest for way in ways}
    assert len(digests) == 1
    assert load({"message_queue": "redis://h/3"}).settings.digest not in digests
