"""How command line, config.json and environment become one `Settings`.

Precedence: command line > config.json > environment > default (behaviour C72), the same for every command (C73, C74). Nobody
else reads the file or the environment. Called by the command line.
"""

import difflib
import json
import math
import os
from collections import Counter
from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec

from pyspider_lite.errors import ConfigError
from pyspider_lite.settings import SCHEDULER_PORT, SECTIONS, Option, Settings, default_database, options

_UNKNOWN = "unknown key"
_TWICE = "is given twice"
_ALWAYS_ON = "the XML-RPC server is on unless no-xmlrpc is set"
_NO_BROWSER = "pages are not rendered by a browser yet"
_NO_WEBUI = "there is no web UI yet"
#: what pyspider had and we do not (behaviour section 1): section.key -> why it is left out
RETIRED = {
    "beanstalk": "beanstalk has not been supported for long",
    "phantomjs_proxy": _NO_BROWSER,
    "puppeteer_proxy": _NO_BROWSER,
    "phantomjs": _NO_BROWSER,
    "puppeteer": _NO_BROWSER,
    "webui": _NO_WEBUI,
    "bench": "bench has no options in the file",
    "one": "one has no options in the file",
    "send_message": "set scheduler-rpc outside of it",
    "scheduler.xmlrpc": _ALWAYS_ON,
    "scheduler.threads": "the scheduler works in batches instead of threads",
    "scheduler.loop_limit": "how much the scheduler takes in one round is bounded by itself",
    "fetcher.xmlrpc": _ALWAYS_ON,
    "fetcher.phantomjs_endpoint": _NO_BROWSER,
    "fetcher.puppeteer_endpoint": _NO_BROWSER,
    "fetcher.splash_endpoint": _NO_BROWSER,
    "all.run_in": "all always starts processes",
}


class Loaded(NamedTuple):
    """What `load` gives: the settings, and sentences to log once logging is set up."""

    settings: Settings
    warnings: list[str]

    @property
    def mistakes(self) -> list[str]:
        """Those of the warnings that are about keys we do not know, or that are given twice."""
        return [warning for warning in self.warnings if _UNKNOWN in warning or _TWICE in warning]


def load(
    file: str | None, overrides: Mapping[str, Any], environ: Mapping[str, str], problems: list[str] | None = None
) -> Loaded:
    """The settings of ``file`` (a config.json or None) under ``overrides``, which has the shape of a config.json.

    Raises ConfigError for the first value that is of no use; with ``problems`` such values are put there and left at their default.
    """
    warnings: list[str] = []
    config = _flatten(_underscored(_read(file, warnings)), file or "", warnings)
    given = _flatten(_underscored(overrides), "command line", warnings)
    settings = Settings()
    for section in SECTIONS:
        target = getattr(settings, section) if section else settings
        for one in options(section):
            try:
                found = _find(one, given, config, file or "", environ)
            except ConfigError as error:
                if problems is None:
                    raise
                problems.append(str(error))
                continue
            if found is not None:
                setattr(target, one.name, found)
    if not settings.message_queue:
        settings.message_queue = _alias(given, config, warnings) or _linked_queue(environ)
    settings.scheduler_rpc = settings.scheduler_rpc or _linked_scheduler(environ)
    _default_databases(settings, environ)
    return Loaded(settings, warnings)


def parse_rate(value: object, name: str) -> float:
    """A rate or burst: a number from 0, or "unlimited", which is infinity here. Raises ConfigError with ``name`` in it."""
    text = str(value).strip().lower()
    if text == "unlimited":
        return math.inf
    try:
        number = float(text)
    except ValueError:
        number = -1.0
    if not (math.isfinite(number) and number >= 0):
        raise ConfigError(f'{name}: expected a number of at least 0 or "unlimited", got {json.dumps(str(value))}')
    return number


def _read(file: str | None, warnings: list[str]) -> dict[str, Any]:
    """What the file holds; says which keys it gives twice, of which JSON keeps the last."""
    if file is None:
        return {}

    def keep(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        names = Counter(key.replace("-", "_") for key, _ in pairs)
        warnings.extend(
            f"{file}: the key {name} {_TWICE} in one object; the last one counts"
            for name, times in names.items()
            if times > 1
        )
        return dict(pairs)

    try:
        with open(file, encoding="utf-8-sig") as stream:
            value = json.load(stream, object_pairs_hook=keep)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{file}: not UTF-8 text (byte {error.start})") from error
    except json.JSONDecodeError as error:
        raise ConfigError(f"{file}: not JSON: line {error.lineno}, column {error.colno}: {error.msg}") from error
    except RecursionError as error:
        raise ConfigError(f"{file}: nested too deeply") from error
    except ValueError as error:
        raise ConfigError(f"{file}: a number in it is too long") from error
    if not isinstance(value, dict):
        raise ConfigError(f"{file}: expected one JSON object, got {_shown(value)}")
    return value


def _underscored(value: Any) -> Any:
    """``-`` in keys is ``_`` at every depth (behaviour C70)."""
    if isinstance(value, Mapping):
        return {str(key).replace("-", "_"): _underscored(part) for key, part in value.items()}
    return value


def _flatten(config: Mapping[str, Any], source: str, warnings: list[str]) -> dict[str, Any]:
    """section.key -> value, for the keys we know; null is not set. Says what is retired or unknown."""
    known = {one.path for section in SECTIONS for one in options(section)}
    flat: dict[str, Any] = {}
    for key, value in config.items():
        if key in SECTIONS and key not in RETIRED:
            if not isinstance(value, Mapping):
                raise ConfigError(f"{source}: {key}: expected an object with the options of {key}, got {_shown(value)}")
            flat.update({f"{key}.{name}": part for name, part in value.items()})
        else:
            flat[key] = value
    for path in [path for path in flat if path not in known]:
        value = flat[path] if path == "amqp_url" else flat.pop(path)
        if path in RETIRED:
            if value not in (None, False, {}):
                warnings.append(f"{source}: {path} is ignored: {RETIRED[path]}")
        elif path != "amqp_url":
            warnings.append(_unknown(path, known, source))
    return {path: value for path, value in flat.items() if value is not None}


def _unknown(path: str, known: set[str], source: str) -> str:
    section, _, name = path.rpartition(".")
    same_section = {other for other in known | (set(SECTIONS) - {""}) if other.rpartition(".")[0] == section}
    near = difflib.get_close_matches(path, same_section, 1, 0.7) or [
        other for other in sorted(known) if other.rpartition(".")[2] == name
    ]
    near = near or difflib.get_close_matches(path, sorted(known | (set(SECTIONS) - {""})), 1, 0.7)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"{source}: {_UNKNOWN} {path} is ignored{hint}"


def _find(one: Option, given: dict[str, Any], config: dict[str, Any], file: str, environ: Mapping[str, str]) -> Any:
    """The value of an option by precedence, None if nobody sets it."""
    if one.path in given:
        return _convert(one, given[one.path], f"--{one.name.replace('_', '-')}")
    if one.path in config:
        return _convert(one, config[one.path], f"{file}: {one.path}")
    value = environ.get(one.env, "") if one.env else ""
    if value and not _is_link(one, value):
        return _convert(one, value, f"environment variable {one.env}")
    return None


def _is_link(one: Option, value: str) -> bool:
    """Docker links and Kubernetes set WEBUI_PORT and the like to tcp://10.0.0.1:5000: not meant for us (behaviour C87)."""
    return one.name.endswith("_port") and value.startswith(("tcp://", "udp://"))


def _convert(one: Option, value: Any, where: str) -> Any:
    """``value`` as the option's type; numbers may be text and text may be a number (behaviour C76)."""
    plain = one.type.__origin__
    if plain is str and type(value) in (int, float):
        value = str(value)
    try:
        if plain is not bool and isinstance(value, bool):
            raise ValueError
        converted = msgspec.convert(value.strip() if isinstance(value, str) else value, one.type, strict=False)
        if isinstance(converted, float) and not math.isfinite(converted):
            raise ValueError
        if isinstance(converted, str) and b"\0" in os.fsencode(converted):
            raise ValueError
    except (msgspec.ValidationError, ValueError) as error:
        hidden = one.secret and isinstance(value, str | list | dict)
        got = f"a {type(value).__name__}, not shown as it may hold a password" if hidden else _shown(value)
        raise ConfigError(f"{where}: expected {_expected(one)}, got {got}") from (None if one.secret else error)
    return converted


def _expected(one: Option) -> str:
    plain, meta = one.type.__origin__, one.meta
    words = {str: "text", bool: "true or false", float: "a number"}.get(plain, "a whole number")
    if meta.ge is not None and meta.le is not None:
        return f"{words} from {meta.ge} to {meta.le}"
    if meta.ge is not None:
        return f"{words} of at least {meta.ge}"
    return f"{words} above {meta.gt}" if meta.gt is not None else words


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."


def _alias(given: dict[str, Any], config: dict[str, Any], warnings: list[str]) -> str:
    """The deprecated amqp_url, used only when message_queue is empty (behaviour C18)."""
    value = given.get("amqp_url") or config.get("amqp_url")
    if not value:
        return ""
    warnings.append("amqp_url is the old name of message_queue")
    one = next(one for one in options("") if one.name == "message_queue")
    return str(_convert(one, value, "amqp_url"))


def _linked_queue(environ: Mapping[str, str]) -> str:
    """A linked RabbitMQ container (behaviour C83)."""
    if not environ.get("RABBITMQ_NAME"):
        return ""
    host, port = (environ.get(f"RABBITMQ_PORT_5672_TCP_{part}", "") for part in ("ADDR", "PORT"))
    return f"amqp://guest:guest@{host}:{port}/%2F" if host and port else ""


def _linked_scheduler(environ: Mapping[str, str]) -> str:
    """A linked scheduler container (behaviour C86)."""
    host = environ.get("SCHEDULER_PORT_23333_TCP_ADDR", "")
    port = environ.get("SCHEDULER_PORT_23333_TCP_PORT", "") or SCHEDULER_PORT
    return f"http://{host}:{port}/" if host else ""


def _default_databases(settings: Settings, environ: Mapping[str, str]) -> None:
    """Databases that nobody named: a linked MySQL container (behaviour C80), else files in data_path (C90)."""
    host, port = (environ.get(f"MYSQL_PORT_3306_TCP_{part}", "") for part in ("ADDR", "PORT"))
    linked = environ.get("MYSQL_NAME") and host and port
    for kind in ("taskdb", "projectdb", "resultdb"):
        if not getattr(settings, kind):
            url = (
                f"sqlalchemy+mysql+{kind}://{host}:{port}/{kind}"
                if linked
                else default_database(kind, settings.data_path)
            )
            setattr(settings, kind, url)
