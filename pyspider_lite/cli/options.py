"""The options of a command, made from the declarations in `settings`; and the settings made from what was given."""

import logging
import os
from collections.abc import Callable
from typing import Any, TypeVar

import click

from pyspider_lite import configuration, log, settings

F = TypeVar("F", bound=Callable[..., Any])

logger = logging.getLogger(__name__)

#: options of pyspider's command lines that do nothing here but say so: section -> (name, takes a value)
_RETIRED = {
    "": (("amqp_url", True), ("beanstalk", True), ("phantomjs_proxy", True), ("puppeteer_proxy", True)),
    "scheduler": (("xmlrpc", False), ("threads", True), ("loop_limit", True)),
    "fetcher": (
        ("xmlrpc", False),
        ("phantomjs_endpoint", True),
        ("puppeteer_endpoint", True),
        ("splash_endpoint", True),
    ),
    "all": (("run_in", True),),
}


def of_section(section: str) -> Callable[[F], F]:
    """Decorator: the command takes the options of a section of the settings. They go into the context, not to the function."""

    def add(function: F) -> F:
        for name, takes_value in reversed(_RETIRED.get(section, ())):
            function = click.option(
                _flag(name),
                is_flag=not takes_value,
                default=None,
                hidden=True,
                expose_value=False,
                callback=_keep(section),
            )(function)
        for one in reversed(list(settings.options(section))):
            function = _option(one)(function)
        if not section:
            function = click.option(
                "-c",
                "--config",
                metavar="FILE",
                help="Settings as JSON (config.json).",
                expose_value=False,
                callback=_file,
            )(function)
        return function

    return add


def settings_of(ctx: click.Context, *, quiet: bool = False) -> settings.Settings:
    """The settings of this command line, with logging set up by them; what is odd about them is logged once."""
    given = _given(ctx)
    loaded = configuration.load(given.get("config"), given["overrides"], os.environ)
    log.setup(loaded.settings.logging_config, debug=loaded.settings.debug, quiet=quiet)
    for warning in loaded.warnings:
        logger.warning("%s", warning)
    return loaded.settings


def checked_settings(ctx: click.Context, problems: list[str]) -> configuration.Loaded:
    """The settings of this command line for `check-config`: what is wrong with them goes into ``problems``, and logging is not set up
    by them."""
    given = _given(ctx)
    loaded = configuration.load(given.get("config"), given["overrides"], os.environ, problems)
    log.setup(quiet=True)
    return loaded


def _given(ctx: click.Context) -> dict[str, Any]:
    given: dict[str, Any] = ctx.find_root().ensure_object(dict)
    given.setdefault("overrides", {})
    return given


def _file(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    _given(ctx)["config"] = value


def _keep(section: str) -> Callable[[click.Context, click.Parameter, Any], None]:
    def keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
        if value is not None and param.name is not None:
            overrides = _given(ctx)["overrides"]
            (overrides.setdefault(section, {}) if section else overrides)[param.name] = value

    return keep


def _option(one: settings.Option) -> Callable[[F], F]:
    is_flag = one.type.__origin__ is bool
    flag = f"{_flag(one.name)}/--not-{_flag(one.name)[2:]}" if one.default is True else _flag(one.name)
    notes = (
        []
        if is_flag or one.default in (None, "")
        else [f"default: {one.default:g}" if isinstance(one.default, float) else f"default: {one.default}"]
    )
    notes += [f"env: {one.env}"] if one.env else []
    return click.option(
        flag,
        one.name,
        is_flag=is_flag,
        type=bool if is_flag else str,
        default=None,
        metavar=None if is_flag else _metavar(one),
        help=(one.meta.description or "") + (f"  [{'; '.join(notes)}]" if notes else ""),
        expose_value=False,
        callback=_keep(one.section),
    )


def _metavar(one: settings.Option) -> str:
    return {str: "TEXT", float: "NUMBER"}.get(one.type.__origin__, "INT")


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
