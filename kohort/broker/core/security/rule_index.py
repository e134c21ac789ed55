"""Rules kept so that a question finds those that concern it, however many there are.

By resource type: a dict of literal names and one of prefixes, of which only the lengths that occur
are asked. What is found there are the rules of one pattern, by principal, so that a pattern with
ten thousand rules costs a question no more than one with two.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Final

from kohort.broker.core.security.acls import (
    EVERYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)

_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operations that come with being allowed another; being denied the other takes nothing away."""

_ALLOWING: Final = {
    operation: frozenset({operation, Operation.ALL, *_IMPLIED_BY.get(operation, ())})
    for operation in Operation
}

_OfPattern = dict[str, dict[Rule, None]]
"""The rules of one pattern by principal, oldest first."""


class _OfType:
    """The rules of one resource type."""

    __slots__ = ("_lengths", "by_principal", "lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _OfPattern] = {}
        self.prefixed: dict[str, _OfPattern] = {}
        self.by_principal: _OfPattern = {}
        """The same rules whatever their pattern."""
        self._lengths: Counter[int] = Counter()
        self.lengths: list[int] = []
        """Lengths of prefixes, ascending."""

    def patterns(self, pattern: PatternType) -> dict[str, _OfPattern]:
        return self.literal if pattern is PatternType.LITERAL else self.prefixed

    def note_prefix(self, prefix: str, difference: int) -> None:
        """A prefix came or went."""
        length = len(prefix)
        count = self._lengths[length] = self._lengths[length] + difference
        if not count:
            del self._lengths[length]
        if count in {0, difference}:
            self.lengths = sorted(self._lengths)

    def matching(self, name: str) -> list[_OfPattern]:
        """The rules of each pattern that the name matches."""
        matching = []
        if name in self.literal:
            matching.append(self.literal[name])
        prefixed = self.prefixed
        for length in self.lengths:
            prefix = name[:length]
            if prefix in prefixed:
                matching.append(prefixed[prefix])
            if prefix == name:
                break
        if name != WILDCARD and WILDCARD in self.literal:
            matching.append(self.literal[WILDCARD])
        return matching


class RuleIndex:
    """All rules of a broker."""

    def __init__(self) -> None:
        self._types = {kind: _OfType() for kind in ResourceType}
        self._rules: dict[Rule, None] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def __iter__(self) -> Iterator[Rule]:
        return iter(self._rules)

    def __contains__(self, rule: Rule) -> bool:
        return rule in self._rules

    def add(self, rule: Rule) -> None:
        """Take a rule in; one that is there stays as it is."""
        if rule in self._rules:
            return
        self._rules[rule] = None
        of_type = self._types[rule.resource_type]
        patterns = of_type.patterns(rule.pattern)
        of_pattern = patterns.get(rule.resource_name)
        if of_pattern is None:
            of_pattern = patterns[rule.resource_name] = {}
            if rule.pattern is PatternType.PREFIXED:
                of_type.note_prefix(rule.resource_name, 1)
        for by_principal in (of_pattern, of_type.by_principal):
            of_principal = by_principal.get(rule.principal)
            if of_principal is None:
                by_principal[rule.principal] = {rule: None}
            else:
                of_principal[rule] = None

    def remove(self, rule: Rule) -> None:
        """Forget a rule, if it is there."""
        if rule not in self._rules:
            return
        del self._rules[rule]
        of_type = self._types[rule.resource_type]
        patterns = of_type.patterns(rule.pattern)
        of_pattern = patterns[rule.resource_name]
        for by_principal in (of_pattern, of_type.by_principal):
            del by_principal[rule.principal][rule]
            if not by_principal[rule.principal]:
                del by_principal[rule.principal]
        if not of_pattern:
            del patterns[rule.resource_name]
            if rule.pattern is PatternType.PREFIXED:
                of_type.note_prefix(rule.resource_name, -1)

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> tuple[Rule | None, bool]:
        """(The rule that decides, whether any pattern matched the name at all.)

        A rule that denies decides before all that allow. Patterns count as matched also where
        their rules are for others.
        """
        allowing = _ALLOWING[operation]
        allowed: Rule | None = None
        has_matched = False
        for of_pattern in self._types[kind].matching(name):
            has_matched = True
            for whose in (principal, EVERYBODY):
                for rule in of_pattern.get(whose, ()):
                    if rule.host not in {WILDCARD, host}:
                        continue
                    if rule.permission is Permission.DENY:
                        if rule.operation in {operation, Operation.ALL}:
                            return rule, True
                    elif allowed is None and rule.operation in allowing:
                        allowed = rule
        return allowed, has_matched

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> Rule | None:
        """A rule that allows the operation on a pattern which no denial covers, be there such a
        resource or not; None without one. A denial of one name takes nothing from a wider pattern.
        """
        allowed: list[Rule] = []
        denied: dict[PatternType, set[str]] = {pattern: set() for pattern in PatternType}
        for rule in self._concerning(principal, host, operation, kind):
            if rule.permission is Permission.ALLOW:
                allowed.append(rule)
            else:
                denied[rule.pattern].add(rule.resource_name)
        if WILDCARD in denied[PatternType.LITERAL]:
            return None
        return next((rule for rule in allowed if not _is_covered(rule, denied)), None)

    def _concerning(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> Iterator[Rule]:
        by_principal = self._types[kind].by_principal
        for whose in (principal, EVERYBODY):
            for rule in by_principal.get(whose, ()):
                if rule.host in {WILDCARD, host} and rule.operation in {operation, Operation.ALL}:
                    yield rule


def _is_covered(rule: Rule, denied: dict[PatternType, set[str]]) -> bool:
    name = rule.resource_name
    if rule.pattern is PatternType.LITERAL:
        if name == WILDCARD:
            return False
        if name in denied[PatternType.LITERAL]:
            return True
    prefixes = denied[PatternType.PREFIXED]
    return bool(prefixes) and any(name[:end] in prefixes for end in range(1, len(name) + 1))
