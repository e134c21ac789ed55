"""An index of rules that finds those that apply to a question, however many rules there are.

Kept by principal, because only the rules of the client's principal and those for everybody decide:
their patterns that match the name are looked up, see `Prefixes`. An entry is not a list of rules
but the operations that they deny and allow, as bits; so the rules of other principals and the
number of hosts and operations cost a question nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from kohort.broker.core.security.acls import (
    EVERYBODY,
    WILDCARD,
    Operation,
    PatternType,
    Permission,
    ResourceType,
    Rule,
)
from kohort.broker.core.security.prefixes import LONG, CountedPrefixes

_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""Operations that are allowed with another; denying that other does not deny them."""

_DENYING: Final = {operation: 1 << operation | 1 << Operation.ALL for operation in Operation}
"""By operation, the bits of rules that deny it."""
_ALLOWING: Final = {
    operation: sum(
        {1 << one for one in (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))}
    )
    for operation in Operation
}
"""By operation, the bits of rules that allow it."""

# A look-up of a member in its Enum takes as long as the look-up of a rule.
_LITERAL: Final = PatternType.LITERAL
_PREFIXED: Final = PatternType.PREFIXED
_DENY: Final = Permission.DENY
_ALLOW: Final = Permission.ALLOW

_NONE: Final = (0, 0)

_Place = tuple[str, str]
"""The name in a pattern, and the host of a rule."""
_Bits = tuple[int, int]
"""The operations that are denied, and those that are allowed."""
_Matching = tuple[PatternType, _Place, _Bits]


class DecidingRules(NamedTuple):
    """Rules that decide a question."""

    permission: Permission
    principal: str
    pattern: PatternType
    place: _Place
    bits: int
    """The operations of these rules."""

    def rule(self, kind: ResourceType) -> Rule:
        """One of these rules; if there are several, the one with the widest operation."""
        name, host = self.place
        operation = Operation((self.bits & -self.bits).bit_length() - 1)
        return Rule(kind, name, self.pattern, self.principal, host, operation, self.permission)


class _Owned:
    """The rules of one principal for one resource type."""

    __slots__ = ("literal", "prefixed", "prefixes")

    def __init__(self) -> None:
        self.literal: dict[_Place, _Bits] = {}
        self.prefixed: dict[_Place, _Bits] = {}
        self.prefixes = CountedPrefixes()
        """The names in `prefixed`, once for each host."""

    def change(self, rule: Rule, *, is_there: bool) -> bool:
        """Add or remove a rule; return whether it is the first, or was the last, of its place."""
        is_prefix = rule.pattern is _PREFIXED
        of_pattern = self.prefixed if is_prefix else self.literal
        place = rule.resource_name, rule.host
        bit = 1 << rule.operation
        before = denied, allowed = of_pattern.get(place, _NONE)
        if rule.permission is _DENY:
            denied = denied | bit if is_there else denied & ~bit
        else:
            allowed = allowed | bit if is_there else allowed & ~bit
        after = denied, allowed
        if after == _NONE:
            del of_pattern[place]
        else:
            of_pattern[place] = after
        if _NONE not in {before, after}:
            return False
        if is_prefix:
            self.prefixes.change(rule.resource_name, is_there=is_there)
        return True

    def matching(self, host: str, name: str, *, is_literal: bool) -> Iterable[_Matching]:
        """The entries that apply to a name and a host; without `is_literal`, the only literal
        pattern considered is the one for all.
        """
        found: list[_Matching] = []
        literal = self.literal
        if literal:
            names = (name, WILDCARD) if is_literal else (WILDCARD,)
            for place in [(one, where) for one in names for where in (WILDCARD, host)]:
                bits = literal.get(place)
                if bits is not None:
                    found.append((_LITERAL, place, bits))
        if self.prefixed:
            for prefix in self.prefixes.of(name):
                for where in (WILDCARD, host):
                    bits = self.prefixed.get((prefix, where))
                    if bits is not None:
                        found.append((_PREFIXED, (prefix, where), bits))
        return found

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)


class _OfType:
    """The rules of one resource type."""

    __slots__ = ("literal", "long_literals", "owned", "prefixes")

    def __init__(self) -> None:
        self.owned: dict[str, _Owned] = {}
        """Rules by principal."""
        self.literal: Counter[str] = Counter()
        """Literal names, counted once for each principal and host."""
        self.prefixes = CountedPrefixes()
        """Prefixes, counted in the same way."""
        self.long_literals: set[int] = set()
        """Lengths of all long literal names that there have been."""

    def change(self, rule: Rule, *, is_there: bool) -> None:
        """Add or remove a rule."""
        owned = self.owned.get(rule.principal)
        if owned is None:
            owned = self.owned[rule.principal] = _Owned()
        name = rule.resource_name
        if owned.change(rule, is_there=is_there):
            if rule.pattern is _PREFIXED:
                self.prefixes.change(name, is_there=is_there)
            else:
                self._count_literal(name, 1 if is_there else -1)
        if not owned:
            del self.owned[rule.principal]

    def _count_literal(self, name: str, difference: int) -> None:
        self.literal[name] += difference
        if not self.literal[name]:
            del self.literal[name]
        elif len(name) > LONG:
            self.long_literals.add(len(name))

    def may_be_literal(self, name: str) -> bool:
        """Whether a name needs a look-up, which for 32 kB takes longer than everything else."""
        return len(name) <= LONG or len(name) in self.long_literals


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
        """Add a rule; one that exists stays as it is."""
        count = len(self._rules)
        # This hashes the rule only once, which is most of the work.
        self._rules.setdefault(rule)
        if len(self._rules) > count:
            self._types[rule.resource_type].change(rule, is_there=True)

    def remove(self, rule: Rule) -> None:
        """Remove a rule, if it exists."""
        if rule in self._rules:
            del self._rules[rule]
            self._types[rule.resource_type].change(rule, is_there=False)

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> DecidingRules | None:
        """The rules that decide, if any applies; one that denies decides before all that allow."""
        of_type = self._types[kind]
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        is_literal = of_type.may_be_literal(name)
        found: DecidingRules | None = None
        for whose in (principal, EVERYBODY):
            owned = of_type.owned.get(whose)
            if owned is None:
                continue
            for pattern, place, (denied, allowed) in owned.matching(
                host, name, is_literal=is_literal
            ):
                if denied & denying:
                    return DecidingRules(_DENY, whose, pattern, place, denied & denying)
                if found is None and allowed & allowing:
                    found = DecidingRules(_ALLOW, whose, pattern, place, allowed & allowing)
        return found

    def matches(self, kind: ResourceType, name: str) -> bool:
        """Whether a name matches any pattern at all, including patterns of other principals."""
        of_type = self._types[kind]
        return (
            WILDCARD in of_type.literal
            or (of_type.may_be_literal(name) and name in of_type.literal)
            or bool(of_type.prefixes.of(name))
        )

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether a rule allows the operation on a pattern that no denial covers, whether such a
        resource exists or not. Denying one name does not affect a wider pattern.
        """
        asked = _DENYING[operation]
        allowed: list[tuple[PatternType, str]] = []
        denied: dict[PatternType, set[str]] = {pattern: set() for pattern in PatternType}
        for pattern, (name, where), (denies, allows) in self._owned_by(principal, kind):
            if where in {WILDCARD, host}:
                if denies & asked:
                    denied[pattern].add(name)
                if allows & asked:
                    allowed.append((pattern, name))
        literal, prefixed = denied[_LITERAL], denied[_PREFIXED]
        if WILDCARD in literal:
            return False
        lengths = sorted(set(map(len, prefixed)))

        def is_covered(pattern: PatternType, name: str) -> bool:
            if pattern is _LITERAL:
                if name == WILDCARD:
                    return False
                if name in literal:
                    return True
            return any(name[:end] in prefixed for end in lengths if end <= len(name))

        return not all(is_covered(*one) for one in allowed)

    def _owned_by(self, principal: str, kind: ResourceType) -> Iterator[_Matching]:
        for whose in (principal, EVERYBODY):
            owned = self._types[kind].owned.get(whose)
            if owned is not None:
                for place, bits in owned.literal.items():
                    yield _LITERAL, place, bits
                for place, bits in owned.prefixed.items():
                    yield _PREFIXED, place, bits
