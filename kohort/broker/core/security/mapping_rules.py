"""`ssl.principal.mapping.rules`: maps the subject of a certificate to the name of a principal.

A comma-separated list of ``DEFAULT``, which returns the subject unchanged, and of
``RULE:pattern/replacement/[L|U]``. The first rule whose pattern matches the whole subject applies.
Every match is then replaced (Java's `replaceAll`, which may match less than the whole subject),
``$1`` is the first group, and L or U changes the case. All of this is as in Kafka's
`SslPrincipalMapper`: a client mapped to another name would have other rights.
"""

import re
from functools import partial
from typing import Final, NamedTuple

_KINDS: Final = (
    r"(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?).*?|.*?"
)
_RULE: Final = re.compile(_KINDS)
_IN_LIST: Final = re.compile(rf"\s*(?P<rule>{_KINDS})\s*(?:,\s*|$)")
_REFERENCE: Final = re.compile(r"\\(.)|\$(?:\{([A-Za-z][A-Za-z0-9]*)\}|(\d+))|[\\$]", re.DOTALL)
"""Special parts of a replacement: an escaped character, a group, or a lone backslash or dollar."""
_JAVA_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


class RulesError(ValueError):
    """The setting cannot be parsed; the message says where."""


class NoRuleError(Exception):
    """No rule matches a subject, so there is no principal."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """The pattern; None for DEFAULT."""
    replacement: str
    case: str


class MappingRules:
    """The rules, in order. A subject that no rule matches has no principal."""

    def __init__(self, text: str) -> None:
        """Parse a value of ssl.principal.mapping.rules. Raises RulesError."""
        texts = [match["rule"] for match in _IN_LIST.finditer(text.strip())]
        self._rules = [_read(text) for text in texts if text]

    def name_for(self, subject: str) -> str:
        """The name of the principal. Raises NoRuleError."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            if rule.pattern.fullmatch(subject) is None:
                continue
            name = rule.pattern.sub(partial(_filled, rule.replacement), subject)
            return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        raise NoRuleError(f"no rule of ssl.principal.mapping.rules matches {subject[:200]!r}")


def _read(text: str) -> _Rule:
    match = _RULE.match(text)
    if match is None or match.end() != len(text):
        raise RulesError(f"{text[:100]!r} is not a rule")
    if match["default"]:
        return _Rule(None, "", "")
    # Java writes named groups without the P, and classes like \\w match ASCII only.
    pattern = _JAVA_GROUP.sub(r"(?P<\1>", match["pattern"])
    try:
        return _Rule(re.compile(pattern, re.ASCII), match["to"], match["case"])
    except re.error as error:
        raise RulesError(f"the pattern {match['pattern']!r} cannot be read: {error}") from error


def _filled(replacement: str, match: re.Match[str]) -> str:
    """Return the replacement of a match. Raises NoRuleError if Kafka cannot expand it."""
    count = match.re.groups
    unknown = 0

    def group(reference: re.Match[str]) -> str:
        nonlocal unknown
        escaped, name, digits = reference.groups()
        if escaped is not None:
            return str(escaped)
        if name is not None and name in match.re.groupindex:
            return match[name] or ""
        if digits is None:
            raise NoRuleError(f"the replacement {replacement!r} refers to an unknown group")
        # The longest number of an existing group counts; the digits after it are text.
        end = next((end for end in range(len(digits), 1, -1) if int(digits[:end]) <= count), 1)
        if int(digits[:end]) <= count:
            return (match[int(digits[:end])] or "") + digits[end:]
        unknown += 1
        if not count or unknown > 1:
            # As in Kafka, the first such reference is text, but only if the pattern has groups.
            raise NoRuleError(f"the replacement {replacement!r} has no group ${digits}")
        return f"${digits}"

    return _REFERENCE.sub(group, replacement)
