"""The regular expressions to which consumers subscribe, in RE2's syntax, as in Kafka.

RE2 takes time proportional to the length of what it matches, whatever the expression. The re module
of Python can take exponential time, and the expressions come from clients.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from kohort.groups.steps import Steps

if TYPE_CHECKING:
    import re2

LENGTH_MAX: Final = 1_000
"""Maximum length of an expression, in characters."""

MEMORY_MAX: Final = 1 << 20
"""Maximum memory of a compiled expression."""


class InvalidRegexError(Exception):
    """An expression that cannot be compiled; the text is for the client."""


def check_regex(regex: str) -> None:
    """Raise InvalidRegexError if an expression cannot be compiled."""
    _compile(regex)


def match_steps(regexes: Sequence[str], names: Sequence[str]) -> Steps[dict[str, frozenset[str]]]:
    """Match each expression against whole names, in steps. Internal topics (`__...`) are matched
    only by an expression that begins with `__`. An expression that cannot be compiled matches
    nothing; the log of another broker may contain one.
    """
    matches: dict[str, frozenset[str]] = {}
    for regex in regexes:
        matched: list[str] = []
        try:
            compiled = _compile(regex)
        except InvalidRegexError:
            matches[regex] = frozenset()
            continue
        includes_internal = regex.lstrip("(^").startswith("__")
        for name in names:
            # A match mostly takes a microsecond, but with some expressions and a long name
            # milliseconds.
            yield
            if compiled.fullmatch(name) and (includes_internal or not name.startswith("__")):
                matched.append(name)
        matches[regex] = frozenset(matched)
    return matches


def _compile(regex: str) -> "re2._Regexp[str]":
    try:
        return compile_re2(regex, MEMORY_MAX)
    except ValueError as error:
        raise InvalidRegexError(
            f"SubscribedTopicRegex `{regex[:LENGTH_MAX]}` is not a valid regular expression:"
            f" {error}."
        ) from None


def compile_re2(regex: str, bytes_max: int) -> "re2._Regexp[str]":
    """Compile an expression. The RE2 library is imported for the first expression: that takes 30
    ms.

    Raises:
        ValueError: with the reason, for the client.
    """
    import re2  # noqa: PLC0415

    if len(regex) > LENGTH_MAX:
        raise ValueError(f"it is longer than {LENGTH_MAX} characters")
    options = re2.Options()
    options.max_mem = bytes_max
    options.log_errors = False  # RE2 would log errors to standard error.
    options.never_capture = True  # With captures, the worst expressions take five times as long.
    try:
        return re2.compile(regex, options)
    except re2.error as error:
        reason = error.args[0].decode(errors="replace") if error.args else "syntax error"
        raise ValueError(reason) from None
