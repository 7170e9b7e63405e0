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
    ("url", "backend"),
    [
        ("redis://:s3cret@127.0.0.1:6379/0", "RedisQueue"),
        ("kombu+redis://127.0.0.1/0?password=s3cret", "RedisQueue"),
        ("rediss://127.0.0.1", "RedisQueue"),
        ("redis+socket:///tmp/redis.sock?virtual_host=1", "RedisQueue"),
        ("sentinel://127.0.0.1;sentinel://127.0.0.2/0?master_name=m", "RedisQueue"),
        ("amqp://u:s3c@ret@127.0.0.1/%2F", "AmqpQueue"),
        ("amqps://127.0.0.1", "AmqpQueue"),
        ("pyamqp://127.0.0.1//", "AmqpQueue"),
        ("kombu+amqp://127.0.0.1//", "AmqpQueue"),
        ("kombu+memory://", "KombuQueue"),
        ("kombu+filesystem://x", "KombuQueue"),
    ],
)
def test_brokers(url: str, backend: str) -> None:
    queue = message_queue.connect(url, "q")
    assert type(queue).__name__ == backend
    assert "s3c" not in queue.shown
    assert "ret" not in queue.shown
    queue.close()


@pytest.mark.parametrize("url", ["kombu+nonsense://x", "kombu+memory.x:Y://", "kombu+://x"])
def test_a_transport_that_kombu_does_not_have(url: str) -> None:
    with pytest.raises(ConfigError, match="kombu cannot use it"):
        message_queue.connect(url, "q")


def test_spaces_of_memory_are_apart() -> None:
    one, two = message_queue.connect("memory://connect-1", "q"), message_queue.connect("memory://connect-2", "q")
    one.put(b"x", 1)
    assert (one.qsize(), two.qsize()) == (1, 0)
