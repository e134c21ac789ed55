"""Settings of Kafka that change nothing here, as settings: what DescribeConfigs tells of them.

They are made from the lines of `kohort.broker.config.ignored` when they are asked for, not at
start. Values are taken, checked as Kafka checks them and stored, so that a tool that sets one finds
it set.
"""

from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from typing import Final, NamedTuple

from kohort.broker.config.ignored import LINES
from kohort.broker.config.settings import ConfigType, Declaration, Setting, Value


class Rule(StrEnum):
    """What Kafka asks of a change at run time beside a value of the right type and size."""

    PER_BROKER = "per-broker"
    """Set for one broker, never for all."""
    THREADS = "threads"
    """A count that may change to at least half and at most double of what it is."""


_RULES: Final = {rule.value: rule for rule in Rule}


class Unused(NamedTuple):
    """One setting without effect."""

    setting: Setting
    rule: Rule | None


@cache
def unused_settings() -> Mapping[str, Unused]:
    """All that Kafka describes, or takes at run time, by name."""
    found = [_read(line, reason) for reason, lines in LINES.items() for line in lines]
    return {one.setting.name: one for one in found if one is not None}


def _read(line: str, reason: str) -> Unused | None:
    name, *words = line.split()
    if not words:
        return None
    kind, default = ConfigType[words[0]], _value(words[0], words[1])
    bounds = {word[:2]: float(word[2:]) for word in words[2:] if word[:2] in {">=", "<="}}
    whole = {key: int(value) for key, value in bounds.items()}
    one_of = next((word for word in words if word.startswith("one-of:")), "")
    setting = Setting(
        name=name,
        attribute=name.replace(".", "_"),
        type=kind,
        optional=default is None,
        default=default,
        section="Accepted and ignored",
        declared=Declaration(
            doc=reason,
            at_least=whole.get(">="),
            at_most=whole.get("<="),
            one_of=tuple(one_of.removeprefix("one-of:").split(",")) if one_of else (),
            or_exactly=None,
            check=None,
            falls_back_to=None,
            dynamic="dynamic" in words,
            honoured=False,
            internal="unlisted" in words,
        ),
    )
    return Unused(setting, next((_RULES[word] for word in words if word in _RULES), None))


def _value(kind: str, text: str) -> Value:
    """A default as the table writes it. `Setting.parse` would need the setting first."""
    if text == "null":
        return None
    text = "" if text == '""' else text
    match kind:
        case "BOOLEAN":
            return text == "true"
        case "INT" | "LONG" | "SHORT":
            return int(text)
        case "DOUBLE":
            return float(text)
        case "LIST":
            return tuple(text.split(",")) if text else ()
        case _:
            return text
