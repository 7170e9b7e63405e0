"""From a URL to a queue."""

import pytest

from pyspider_lite import message_queue
from pyspider_lite.errors import ConfigError


def test_backends_are_sorted() -> None:
    assert list(message_queue._BACKENDS) == sorted(message_queue._BACKENDS)


@pytest.mark.parametrize("url", ["", "redis", "memory://", "://x"])
def test_what_is_no_url_is_refused(url: str) -> None:
    with pytest.raises(ConfigError):
        message_queue.connect(url, "q")


def test_a_typo_gets_a_hint() -> None:
    with pytest.raises(ConfigError, match="did you mean builtin"):
        message_queue.connect("bultin:///tmp/x", "q")
    with pytest.raises(ConfigError, match="there are amqp, "):
        message_queue.connect("gopher://x", "q")


@pytest.mark.parametrize(
    "url", ["redis://:s3cret@h:6379/0", "amqp://u:s3c@ret@h/%2F", "kombu+redis://h/0?password=s3cret&x=1"]
)
def test_brokers_come_later_and_passwords_are_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match="comes with the kombu backend") as caught:
        message_queue.connect(url, "q")
    assert "s3c" not in str(caught.value)
    assert "ret" not in str(caught.value)


def test_spaces_of_memory_are_apart() -> None:
    one, two = message_queue.connect("memory://connect-1", "q"), message_queue.connect("memory://connect-2", "q")
    one.put(b"x", 1)
    assert (one.qsize(), two.qsize()) == (1, 0)
