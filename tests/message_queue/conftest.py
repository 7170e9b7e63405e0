"""Real brokers, one of each for all tests of this folder. Who stops, freezes or fills one puts it right again."""

from collections.abc import Iterator

import pytest

from pyspider_lite.bench.servers import RabbitMq, Redis


@pytest.fixture(scope="session")
def redis() -> Iterator[Redis]:
    server = Redis()
    try:
        server.start()
        yield server
    finally:
        server.close()


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[RabbitMq]:
    server = RabbitMq()
    try:
        server.start()
        yield server
    finally:
        server.close()
