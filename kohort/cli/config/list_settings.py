"""``kohort config list``: settings of brokers and topics, their defaults and what they mean."""

import argparse
import textwrap
from collections.abc import Iterable, Iterator
from typing import Any, Final

from kohort.broker.config.current import BROKER_SETTINGS
from kohort.broker.config.settings import Setting
from kohort.broker.config.topic import TOPIC_SETTINGS
from kohort.cli.errors import NotFoundError
from kohort.cli.options import print_json

_INDENT: Final = "    "
_WIDTH: Final = 100


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "words",
        metavar="WORD",
        nargs="*",
        help="only settings with all of these in their names or meanings",
    )
    parser.add_argument("--topics", action="store_true", help="configs of topics instead")
    parser.add_argument(
        "--all", action="store_true", help="also those that are accepted and change nothing"
    )
    parser.add_argument("--json", action="store_true", help="for programs")
    parser.set_defaults(ask=ask)


def ask(options: argparse.Namespace) -> None:
    """Raises CommandError."""
    known = TOPIC_SETTINGS if options.topics else BROKER_SETTINGS
    found = [
        one
        for one in known.values()
        if not one.declared.internal
        and (options.all or one.declared.honoured)
        and _has_all(one, options.words)
    ]
    if not found:
        raise NotFoundError(
            f"no setting has {' and '.join(options.words)} in it; `kohort config list` has them all"
        )
    if options.json:
        print_json({"settings": [_as_json(one) for one in found]})
        return
    for line in lines(found):
        print(line)


def lines(settings: Iterable[Setting]) -> Iterator[str]:
    """What is printed: sections, and in them NAME=DEFAULT with its meaning below it."""
    section = None
    for one in settings:
        if one.section != section:
            if section is not None:
                yield ""
            section = one.section
            yield f"# {section}"
        default = one.format(one.default)
        yield f"{one.name}={'' if default is None else default}"
        meaning = f"{one.declared.doc} Allowed: {one.allowed()}."
        if one.declared.dynamic:
            meaning += " May be changed at run time."
        yield from textwrap.wrap(meaning, _WIDTH, initial_indent=_INDENT, subsequent_indent=_INDENT)


def _has_all(setting: Setting, words: Iterable[str]) -> bool:
    text = f"{setting.name} {setting.declared.doc}".lower()
    return all(word.lower() in text for word in words)


def _as_json(setting: Setting) -> dict[str, Any]:
    return {
        "name": setting.name,
        "default": setting.format(setting.default),
        "type": setting.type.name.lower(),
        "allowed": setting.allowed(),
        "dynamic": setting.declared.dynamic,
        "section": setting.section,
        "meaning": setting.declared.doc,
    }
