"""The client libraries of a group's members, and the settings that these libraries lack.

Clients state their software with ApiVersions (KIP-511). Wrappers of librdkafka state their own name
and version, and librdkafka's version after them: confluent-kafka-python, 2.16.1-rdkafka-2.16.0.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from math import inf
from typing import Final, NamedTuple, TypeAlias

from kohort.insight.advisor.setting import Setting

Version: TypeAlias = tuple[float, ...]

JAVA: Final = "java"
LIBRDKAFKA: Final = "librdkafka"
AIOKAFKA: Final = "aiokafka"
KOHORT: Final = "kohort"

_STATES_NOTHING: Final = "unknown"
_LIBRARIES: Final = {
    "apache-kafka-java": JAVA,
    "kohort-python": KOHORT,
    # Of the libraries in _SINCE, only aiokafka does not state its software.
    _STATES_NOTHING: AIOKAFKA,
}
_RDKAFKA: Final = re.compile(r"rdkafka-?(.*)")
_NUMBERS: Final = re.compile(r"\d+(?:\.\d+)*")
_DIGITS_MAX: Final = 9

_ANY: Final[Version] = (inf,)
_NEVER: Final[Version] = (inf, inf)
_SINCE: Final[Mapping[str, Mapping[str, Version]]] = {
    "static": {JAVA: (2, 3), LIBRDKAFKA: (1, 4)},
    "cooperative": {JAVA: (2, 4), LIBRDKAFKA: (1, 6), AIOKAFKA: _NEVER},
    "consumer": {JAVA: (4, 0), LIBRDKAFKA: (2, 12), AIOKAFKA: _NEVER, "kafka-python": _NEVER},
    "states_reasons": dict.fromkeys((JAVA, LIBRDKAFKA, AIOKAFKA, "kafka-python"), _NEVER),
}
"""The first version of each library that has a setting. A library that is not listed has it in all
versions, or its first version is unknown here."""
_NAMES: Final = {
    "static": "static membership",
    "cooperative": "a cooperative assignor",
    "consumer": "the consumer protocol",
}


class Software(NamedTuple):
    library: str = ""
    """A constant of this module for a known client, else the name that the client reports; empty if
    the history has none."""
    version: Version = ()
    """Empty if it is unknown."""

    def __str__(self) -> str:
        if self.library == AIOKAFKA:
            return "a client that states no version, as aiokafka,"
        return " ".join([self.library, ".".join(map(str, self.version))]).strip()


UNKNOWN: Final = Software()


def software_of(name: str | None, version: str | None) -> Software:
    """Return the client software for the name and version in a history record."""
    if not name:
        return UNKNOWN
    version = version or ""
    library = _LIBRARIES.get(name, name)
    wrapped = _RDKAFKA.search(version)
    if wrapped is not None or "rdkafka" in name:
        library = LIBRDKAFKA
        version = version if wrapped is None else wrapped[1]
    numbers = _NUMBERS.search(version)
    parts = [] if numbers is None else numbers[0].split(".")
    return Software(library, tuple([int(part[:_DIGITS_MAX]) for part in parts]))


def libraries_of(members: Sequence[Software]) -> tuple[str, ...]:
    """Return the known libraries, those with the most members first."""
    counts = Counter(software.library for software in members if software.library)
    return tuple([library for library, _ in counts.most_common()])


def is_possible(members: Sequence[Software], recorded: Setting, setting: Setting) -> bool:
    """Whether the clients of all members support the features that `setting` adds to `recorded`."""
    return not any(
        _first_without(members, name)
        for name in _SINCE
        if getattr(setting, name) and not getattr(recorded, name)
    )


def impossible(members: Sequence[Software], recorded: Setting) -> Iterator[str]:
    """Yield a sentence for each setting that is not tried because a member lacks it."""
    for name, text in _NAMES.items():
        software = _first_without(members, name)
        is_change = not (getattr(recorded, name) or recorded.consumer)
        if software is not None and is_change:
            yield f"not tried: {text}, since {software} has none"


def _first_without(members: Sequence[Software], name: str) -> Software | None:
    since = _SINCE[name]
    for software in members:
        if (software.version or _ANY) < since.get(software.library, ()):
            return software
    return None
