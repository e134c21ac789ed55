"""``kohort config check``: what a start would say of its settings, without starting."""

import argparse
import os
from collections.abc import Iterator

from kohort.broker import __main__ as daemon
from kohort.broker.config.broker import BrokerConfig
from kohort.broker.config.listeners import own_setting
from kohort.broker.config.load import ConfigError, LoadedConfig, load
from kohort.broker.config.settings import HIDDEN, ConfigType, settings_of
from kohort.cli.errors import NotFoundError
from kohort.cli.options import print_json


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Reads the file, the environment (KAFKA_NUM_PARTITIONS=3) and --override as `kohort serve` "
        "does, and says what is set, where, and what is wrong with it."
    )
    daemon.add_arguments(parser)
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError: one line for each problem."""
    try:
        loaded = load(file=options.config, overrides=options.override, environment=os.environ)
    except ConfigError as error:
        if not options.json:
            raise NotFoundError(str(error)) from error
        print_json({"problems": list(error.problems)})
        raise NotFoundError("these settings cannot be used") from error
    if options.json:
        print_json(
            {
                "problems": [],
                "warnings": list(loaded.warnings),
                "set": {
                    name: _text(loaded, name)
                    for name in (*sorted(loaded.given), *sorted(loaded.given_own))
                },
                "without_effect": [one.name for one in loaded.ignored],
            }
        )
        return
    for line in lines(loaded):
        print(line)


def lines(loaded: LoadedConfig) -> Iterator[str]:
    """What is printed where all can be used."""
    for name in sorted(loaded.given):
        yield f"{name}={_text(loaded, name)}  ({loaded.given[name].origin})"
    for name in sorted(loaded.given_own):
        yield f"{name}={_text(loaded, name)}  ({loaded.given_own[name].origin})"
    for one in loaded.ignored:
        yield f"{one.name}: accepted, and changes nothing here  ({one.origin})"
    yield from (f"warning: {text}" for text in loaded.warnings)
    yield "these settings can be used"


def _text(loaded: LoadedConfig, name: str) -> str:
    own = own_setting(name)
    known = settings_of(BrokerConfig)[name] if own is None else own.setting
    given = loaded.given if own is None else loaded.given_own
    return HIDDEN if known.type is ConfigType.PASSWORD else given[name].text
