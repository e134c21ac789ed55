"""``kohort config``: lists and checks settings; `stored_configs` has get, set and delete."""

import argparse
import os
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kohort.broker import __main__ as daemon
from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.listeners import own_setting
from kohort.broker.config.load import ConfigError, LoadedConfig, load
from kohort.broker.config.settings import HIDDEN, ConfigType, Setting, settings_of
from kohort.broker.config.topic import TOPIC_SETTINGS
from kohort.cli.commands import Commands
from kohort.cli.errors import NotFoundError
from kohort.cli.options import add_json, print_json, print_result
from kohort.cli.stored_configs import add_stored

_INDENT: Final = "    "
_WIDTH: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    commands = Commands(parser, failure="no such setting, or an invalid one")

    command = commands.add("list", "settings, their defaults and what they mean", _list)
    command.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="only settings with all of these words in their name or description",
    )
    command.add_argument(
        "--topics", action="store_true", help="list configs of topics instead of brokers"
    )
    command.add_argument(
        "--all", action="store_true", help="include settings that are accepted but have no effect"
    )
    add_json(command)

    command = commands.add(
        "check",
        "check the settings that a start would use",
        _check,
        description="Reads the file, the environment (KAFKA_NUM_PARTITIONS=3) and --override as "
        "`kohort serve` does, and prints the settings with their origin, or the errors.",
    )
    daemon.add_arguments(command)
    add_json(command)

    add_stored(commands)


def _list(options: argparse.Namespace) -> None:
    known = TOPIC_SETTINGS if options.topics else BROKER_SETTINGS
    settings = [
        setting
        for setting in known.values()
        if not setting.declared.internal
        and (options.all or setting.declared.honoured)
        and _has_all(setting, options.words)
    ]
    if not settings:
        raise NotFoundError(
            f"no setting matches {' and '.join(options.words)}; `kohort config list` lists them all"
        )
    data = {"settings": [_setting_json(setting) for setting in settings]}
    print_result(options, data, _setting_lines(settings))


def _setting_lines(settings: Iterable[Setting]) -> Iterator[str]:
    """Yield each section's heading, then NAME=DEFAULT and the description of its settings."""
    section = None
    for setting in settings:
        if setting.section != section:
            if section is not None:
                yield ""
            section = setting.section
            yield f"# {section}"
        default = setting.format(setting.default)
        yield f"{setting.name}={'' if default is None else default}"
        meaning = f"{setting.declared.doc} Allowed: {setting.allowed()}."
        if setting.declared.dynamic:
            meaning += " May be changed at run time."
        yield from textwrap.wrap(meaning, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _has_all(setting: Setting, words: Iterable[str]) -> bool:
    text = f"{setting.name} {setting.declared.doc}".lower()
    return all(word.lower() in text for word in words)


def _setting_json(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "default": setting.format(setting.default),
        "type": setting.type.name.lower(),
        "allowed": setting.allowed(),
        "dynamic": setting.declared.dynamic,
        "section": setting.section,
        "meaning": setting.declared.doc,
    }


def _check(options: argparse.Namespace) -> None:
    """Print the settings a broker would start with. Raises NotFoundError if they are invalid."""
    try:
        loaded = load(file=options.config, overrides=options.override, environment=os.environ)
    except ConfigError as error:
        if not options.json:
            raise NotFoundError(str(error)) from error
        print_json({"problems": list(error.problems)})
        raise NotFoundError("the settings are invalid") from error
    names = [*sorted(loaded.given), *sorted(loaded.given_own)]
    data = {
        "problems": [],
        "warnings": list(loaded.warnings),
        "set": {name: _value_text(loaded, name) for name in names},
        "without_effect": [setting.name for setting in loaded.ignored],
    }
    print_result(options, data, _check_lines(loaded, names))


def _check_lines(loaded: LoadedConfig, names: Iterable[str]) -> Iterator[str]:
    for name in names:
        given = loaded.given.get(name) or loaded.given_own[name]
        yield f"{name}={_value_text(loaded, name)}  ({given.origin})"
    for setting in loaded.ignored:
        yield f"{setting.name}: accepted, but has no effect here  ({setting.origin})"
    yield from (f"warning: {text}" for text in loaded.warnings)
    yield "the settings are valid"


def _value_text(loaded: LoadedConfig, name: str) -> str:
    own = own_setting(name)
    known = settings_of(BrokerConfig)[name] if own is None else own.setting
    given = loaded.given if own is None else loaded.given_own
    return HIDDEN if known.type is ConfigType.PASSWORD else given[name].text
