"""Parses Java properties files, the format of Kafka's server.properties."""

import re
from collections.abc import Iterator
from typing import NamedTuple

_SEPARATOR = r"(?<!\\)(?:\\\\)*(?P<separator>[ \t\f]*[=:][ \t\f]*|[ \t\f]+)"
_LINE_END = r"\r\n?|\n"
"""Java's line ends. `str.splitlines` has further ones, which a password may contain."""
_ESCAPE = r"\\(u[0-9a-fA-F]{4}|.)"
_CONTROL = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}


class Property(NamedTuple):
    name: str
    value: str
    line: int
    """Number of the property's first line, from 1."""


def parse_properties(text: str) -> Iterator[Property]:
    """Yield the entries in order; a repeated name is yielded repeatedly."""
    for number, line in _logical_lines(text):
        match = re.search(_SEPARATOR, line)
        if match is None:
            yield Property(_unescape(line), "", number)
        else:
            name, value = line[: match.start("separator")], line[match.end() :]
            yield Property(_unescape(name), _unescape(value).rstrip(), number)


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end with a backslash to the next; skip comments and blank lines."""
    begun: list[str] = []
    start = 0
    for number, raw in enumerate(re.split(_LINE_END, text), 1):
        line = raw.lstrip(" \t\f")
        if not begun:
            if not line or line[0] in "#!":
                continue
            start = number
        backslashes = len(line) - len(line.rstrip("\\"))
        if backslashes % 2:
            begun.append(line[:-1])
            continue
        yield start, "".join([*begun, line])
        begun = []
    if begun:
        yield start, "".join(begun)


def _unescape(text: str) -> str:
    def replace(match: re.Match[str]) -> str:
        escaped = match[1]
        if len(escaped) > 1:
            return chr(int(escaped[1:], 16))
        return _CONTROL.get(escaped, escaped)

    return re.sub(_ESCAPE, replace, text, flags=re.DOTALL)
