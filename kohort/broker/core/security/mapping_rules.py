"""`ssl.principal.mapping.rules`: from the subject of a certificate to the name of a principal.

A comma-separated list of ``DEFAULT``, which takes the subject as it is, and of
``RULE:pattern/replacement/[L|U]``. The first rule counts whose pattern matches the whole subject;
``$1`` in its replacement is what the first group matched, and L or U change the case of the result.
"""

import re
from typing import Final, NamedTuple

_RULE: Final = re.compile(
    r"\s*(?:(?P<default>DEFAULT)|RULE:(?P<pattern>(?:\\.|[^\\/])*)/(?P<to>(?:\\.|[^\\/])*)/"
    r"(?P<case>[LU]?).*?)\s*(?:,\s*|$)",
    re.DOTALL,
)
_REFERENCE: Final = re.compile(r"\$(\d+)")
_JAVA_GROUP: Final = re.compile(r"\(\?<([A-Za-z][A-Za-z0-9]*)>")


class RulesError(ValueError):
    """The setting cannot be read; the text says where."""


class NoRuleError(Exception):
    """No rule matches a subject, so that there is no principal."""


class _Rule(NamedTuple):
    pattern: re.Pattern[str] | None
    """The pattern; None for DEFAULT."""
    replacement: str
    case: str


class MappingRules:
    """The rules in their order."""

    def __init__(self, text: str) -> None:
        """Raises RulesError."""
        self._rules: list[_Rule] = []
        position = 0
        text = text.strip() or "DEFAULT"
        while position < len(text):
            found = _RULE.match(text, position)
            if found is None or found.end() == position:
                raise RulesError(f"{text[position : position + 100]!r} is no rule")
            position = found.end()
            self._rules.append(_read(found))

    def name_for(self, subject: str) -> str:
        """The name of the principal. Raises NoRuleError."""
        for rule in self._rules:
            if rule.pattern is None:
                return subject
            found = rule.pattern.fullmatch(subject)
            if found is not None:
                name = _filled(rule.replacement, found)
                return {"L": name.lower(), "U": name.upper()}.get(rule.case, name)
        raise NoRuleError(f"no rule of ssl.principal.mapping.rules matches {subject[:200]!r}")


def _read(found: re.Match[str]) -> _Rule:
    if found["default"]:
        return _Rule(None, "", "")
    # Java writes named groups without the P.
    pattern = _JAVA_GROUP.sub(r"(?P<\1>", found["pattern"])
    try:
        return _Rule(re.compile(pattern), found["to"].replace("\\/", "/"), found["case"])
    except re.error as error:
        raise RulesError(f"the pattern {found['pattern']!r} cannot be read: {error}") from error


def _filled(replacement: str, found: re.Match[str]) -> str:
    def group(reference: re.Match[str]) -> str:
        number = int(reference[1])
        if number > found.re.groups:
            return reference[0]
        return found[number] or ""

    return _REFERENCE.sub(group, replacement)
