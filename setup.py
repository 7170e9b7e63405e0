"""Packaging: static metadata; tool settings are in pyproject.toml."""

import pathlib
import re

from setuptools import find_packages, setup

ROOT = pathlib.Path(__file__).parent
VERSION = re.search(r'^__version__ = "(.+)"', (ROOT / "pyspider_lite/__init__.py").read_text("utf-8"), re.MULTILINE)
assert VERSION is not None, "pyspider_lite/__init__.py has no __version__"

POSTGRESQL = ["psycopg[binary]>=3.2"]
ZOOKEEPER = ["kazoo>=2.10"]
DEV = [
    *POSTGRESQL,
    *ZOOKEEPER,
    "build>=1.2",
    "hypothesis>=6.100",
    "import-linter>=2.1",
    "lxml-stubs>=0.5",
    "mypy>=1.13",
    "pytest>=8.3",
    "pytest-timeout>=2.3",
    "pytest-xdist>=3.6",
    "ruff>=0.9",
    "trustme>=1.2",
    "types-PyMySQL",
    "types-requests",
]

setup(
    name="pyspider_lite",
    version=VERSION[1],
    description="A distributed web crawler suite that runs pyspider's scripts: scheduler, fetchers, processors, result workers",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11",
    packages=find_packages(include=["pyspider_lite", "pyspider_lite.*"]),
    package_data={"pyspider_lite": ["py.typed", "compat/logging.conf"]},
    install_requires=[
        "amqp>=5.2",
        "brotli>=1.1",
        "certifi>=2024.2.2",
        "charset-normalizer>=3.3",
        "click>=8.1.7",
        "cronsim>=2.6",
        "idna>=3.7",
        "kombu>=5.4",
        "lxml>=5.2",
        "msgspec>=0.19",
        "packaging>=23",  # kombu's transport for Redis needs it
        "parsel>=1.9",
        "packaging>=23",  # kombu's transport for Redis needs it
        "parsel>=1.9",
        "prometheus-client>=0.21",
        "protego>=0.3.1",
        "pycurl>=7.45.4",
        "PyMySQL>=1.1",
        "pyquery>=2.0",
        "redis>=5.0",
        "requests>=2.32",
        "SQLAlchemy>=2.0.30",
        "supervisor>=4.2.5",
        "tzdata>=2024.1",  # small containers have no time zones
        "webencodings>=0.6",
        "zstandard>=0.23",
    ],
    extras_require={
        "postgresql": POSTGRESQL,
        "zookeeper": ZOOKEEPER,
        "dev": DEV,
        "all": [*POSTGRESQL, *ZOOKEEPER],
    },
    entry_points={
        "console_scripts": [
            "pyspider_lite = pyspider_lite.cli:main",
            "pyspider-lite = pyspider_lite.cli:main",
        ]
    },
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Environment :: Console",
        "Intended Audience :: Developers",
        "Operating System :: POSIX",
        "Programming Language :: Python :: 3 :: Only",
        "Topic :: Internet :: WWW/HTTP :: Indexing/Search",
        "Typing :: Typed",
    ],
)
