"""Broker settings of any Kafka release that have no effect here, read from ignored.txt when needed.

They are accepted at the start, so that a server.properties of Kafka can be used unchanged; the log
lists them once. Settings that Kafka describes, or accepts at run time, are described with Kafka's
type and default. Their values are validated as in Kafka and stored, so that tools can read back
what they have set.
"""

from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Final

from kohort.broker.config.settings import ConfigType, Declaration, Setting, Value

_FILE: Final = Path(__file__).with_name("ignored.txt")

_EDITS_MAX: Final = 2

_LETTERS_OF_AN_EDIT: Final = 5
"""Letters of a name per allowed edit; with fewer, node.ip would match node.id."""


class Rule(StrEnum):
    """Kafka's conditions for a change at run time, besides the type and range of the value."""

    PER_BROKER = "per-broker"
    """Can be set for one broker, but not cluster-wide."""
    THREADS = "threads"
    """A number of threads; a change can at most halve or double it."""


_RULES: Final = frozenset(rule.value for rule in Rule)


def why_ignored(name: str) -> str | None:
    """Return why a Kafka setting has no effect here; None for other names."""
    reason = ignored_names().get(name)
    if reason is not None:
        return reason
    prefixes = ignored_prefixes().items()
    return next((reason for prefix, reason in prefixes if name.startswith(prefix)), None)


@cache
def ignored_names() -> Mapping[str, str]:
    """Return the reasons why settings are ignored, by name."""
    return {line.partition(" ")[0]: reason for line, reason in _lines() if line[-1] != "*"}


@cache
def ignored_prefixes() -> Mapping[str, str]:
    """Return the reasons why families of settings are ignored, by their common prefix."""
    return {line.removesuffix("*"): reason for line, reason in _lines() if line[-1] == "*"}


@cache
def ignored_settings() -> Mapping[str, Setting]:
    """Return the ignored settings that Kafka describes or accepts at run time, by name."""
    settings = [_parse(line, reason) for line, reason in _lines() if " " in line]
    return {setting.name: setting for setting in settings}


@cache
def _lines() -> tuple[tuple[str, str], ...]:
    """Return each line of ignored.txt with its section's heading: why the setting is ignored."""
    lines: list[tuple[str, str]] = []
    reason = ""
    for line in _FILE.read_text(encoding="utf-8").splitlines():
        if line.startswith("["):
            reason = line.strip("[]")
        elif line and not line.startswith("#"):
            lines.append((line, reason))
    return tuple(lines)


def _parse(line: str, reason: str) -> Setting:
    name, kind, text, *words = line.split()
    default = _value(kind, text)
    bounds = {word[:2]: int(word[2:]) for word in words if word[:2] in {">=", "<="}}
    one_of = next((word for word in words if word.startswith("one-of:")), "")
    return Setting(
        name=name,
        attribute=name.replace(".", "_"),
        type=ConfigType[kind],
        optional=default is None,
        default=default,
        section="Accepted and ignored",
        declared=Declaration(
            doc=reason,
            at_least=bounds.get(">="),
            at_most=bounds.get("<="),
            one_of=tuple(one_of.removeprefix("one-of:").split(",")) if one_of else (),
            dynamic="dynamic" in words,
            honoured=False,
            internal="unlisted" in words,
            rule=next((word for word in words if word in _RULES), ""),
        ),
    )


def _value(kind: str, text: str) -> Value:
    """Parse a default; a `Setting`, whose `parse` would do it, cannot be created without one."""
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


def misspelt(name: str, known: Iterable[str]) -> str | None:
    """Return the known name that `name` is a misspelling of; None if it resembles none of them.

    An edit inserts, deletes or replaces a letter, or swaps two neighbours (Damerau and
    Levenshtein). A misspelling is at most two edits away, and at most one edit for every five
    letters of the known name.
    """
    known = tuple(known)
    for edits in range(_EDITS_MAX + 1):
        for other in known:
            if edits <= len(other) // _LETTERS_OF_AN_EDIT and _is_within(name, other, edits):
                return other
    return None


def _is_within(name: str, other: str, edits: int) -> bool:
    """Whether at most this many edits turn one name into the other."""
    if abs(len(name) - len(other)) > edits:
        return False
    if not name or not other:
        return True
    if name[0] == other[0]:
        return _is_within(name[1:], other[1:], edits)
    if not edits:
        return False
    left = edits - 1
    return (
        _is_within(name[1:], other[1:], left)
        or _is_within(name[1:], other, left)
        or _is_within(name, other[1:], left)
        or (name[:2] == other[1::-1] and _is_within(name[2:], other[2:], left))
    )
