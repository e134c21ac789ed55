"""An index that finds the applicable rules in time independent of the number of rules.

Rules apply to a client if they are for its principal or everybody, and for its host or every host.
So they are indexed by principal and host, then by pattern (see `Prefixes`). The rules of one
principal, host and pattern are a bit set of the operations that they deny and allow, and a decision
is a bitwise AND of the operation with the sets of all matching patterns.
"""

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
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


class Prefixes:
    """Maps nonempty prefixes to nonzero numbers: bits, or a count. Finds all prefixes of a name by
    looking up the name's start for each prefix length.
    """

    __slots__ = ("_lengths", "_values")

    def __init__(self) -> None:
        self._values: dict[str, int] = {}
        self._lengths: list[int] = []
        """The lengths of all prefixes added since the map was last empty, ascending."""

    def __len__(self) -> int:
        return len(self._values)

    def __iter__(self) -> Iterator[tuple[str, int]]:
        return iter(self._values.items())

    def __getitem__(self, prefix: str) -> int:
        """Return the value of a prefix; 0 if it is missing."""
        return self._values.get(prefix, 0)

    def __setitem__(self, prefix: str, value: int) -> None:
        """Map a prefix to `value`; 0 removes the prefix."""
        if not value:
            self._values.pop(prefix, None)
            if not self._values:
                self._lengths.clear()
            return
        self._values[prefix] = value
        place = bisect_left(self._lengths, len(prefix))
        if self._lengths[place : place + 1] != [len(prefix)]:
            self._lengths.insert(place, len(prefix))

    def united(self, name: str, enough: int) -> int:
        """Return the bitwise OR of the values of all prefixes of a name; 0 if it has none. Stops
        at a value with one of the bits in `enough`.
        """
        united, get, end = 0, self._values.get, len(name)
        for length in self._lengths:
            if length > end:
                break
            bits = get(name[:length])
            if bits is not None:
                united |= bits
                if bits & enough:
                    break
        return united

    def matching(self, name: str) -> list[str]:
        """The prefixes of a name, the shortest first."""
        ends = self._lengths[: bisect_left(self._lengths, len(name) + 1)]
        return [prefix for end in ends if (prefix := name[:end]) in self._values]


_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.ALTER_CONFIGS}),
}
"""By operation, the operations that include it: allowing one of these also allows it; denying one
of these does not deny it.
"""

_ALLOWED: Final = 16
"""The bits of allowed operations are this far left of the bits of denied operations."""
_DENYING: Final = {operation: 1 << operation | 1 << Operation.ALL for operation in Operation}
"""By operation: the bits of the rules that deny it."""
_ALLOWING: Final = {
    operation: sum(
        {1 << implying for implying in (operation, Operation.ALL, *_IMPLIED_BY.get(operation, ()))}
    )
    << _ALLOWED
    for operation in Operation
}
"""By operation: the bits of the rules that allow it."""
_BITS: Final = tuple(1 << place for place in range(2 * _ALLOWED))
"""The bits as shared integers: a hundred thousand separate objects would cause cache misses."""

# Globals, because looking up a member in its Enum takes as long as looking up a rule.
_LITERAL: Final = PatternType.LITERAL
_PREFIXED: Final = PatternType.PREFIXED
_DENY: Final = Permission.DENY
_ALLOW: Final = Permission.ALLOW

_Whose = tuple[str, str]
"""The principal and the host of rules."""
_Entry = tuple[PatternType, str, int]
"""Type and name of a pattern, and the bits of its rules."""


class DecidingRules(NamedTuple):
    permission: Permission
    whose: _Whose
    pattern: PatternType
    name: str
    bits: int
    """The operations of the deciding rules, as bits."""

    def rule(self, kind: ResourceType) -> Rule:
        """Return one of the deciding rules: the one with the widest operation."""
        principal, host = self.whose
        operation = Operation((self.bits & -self.bits).bit_length() - 1)
        return Rule(kind, self.name, self.pattern, principal, host, operation, self.permission)


class _Owned:
    """The rules of one principal and host for one resource type."""

    __slots__ = ("denied", "literal", "prefixed")

    def __init__(self) -> None:
        self.denied = 0
        """The bits of all denying rules ever added; cleared when there are no rules."""
        self.literal: dict[str, int] = {}
        self.prefixed: Prefixes | None = None
        """The prefixed rules; None before the first one, because most principals have none."""

    def change(self, rule: Rule, *, is_there: bool) -> bool:
        """Add or remove a rule; return whether it is the first, or was the last, of its pattern."""
        name = rule.resource_name
        bit = _BITS[rule.operation + (_ALLOWED if rule.permission is _ALLOW else 0)]
        if rule.permission is _DENY:
            self.denied |= bit
        if rule.pattern is _PREFIXED:
            if self.prefixed is None:
                self.prefixed = Prefixes()
            before = self.prefixed[name]
            after = self.prefixed[name] = _changed(before, bit, is_there=is_there)
        else:
            before = self.literal.get(name, 0)
            after = _changed(before, bit, is_there=is_there)
            if after:
                self.literal[name] = after
            else:
                del self.literal[name]
        return not before or not after

    def matching(self, name: str) -> Iterator[_Entry]:
        """The entries that apply to a name."""
        for resource in (name, WILDCARD):
            bits = self.literal.get(resource)
            if bits is not None:
                yield _LITERAL, resource, bits
        if self.prefixed is not None:
            for prefix in self.prefixed.matching(name):
                yield _PREFIXED, prefix, self.prefixed[prefix]

    def __bool__(self) -> bool:
        return bool(self.literal or self.prefixed)

    def __iter__(self) -> Iterator[_Entry]:
        for name, bits in self.literal.items():
            yield _LITERAL, name, bits
        for prefix, bits in self.prefixed or ():
            yield _PREFIXED, prefix, bits


class _OfType:
    __slots__ = ("literal", "owned", "prefixes")

    def __init__(self) -> None:
        self.owned: dict[_Whose, _Owned] = {}
        self.literal: Counter[str] = Counter()
        """By literal name: how many pairs of a principal and a host have rules for it."""
        self.prefixes = Prefixes()
        """By prefix: how many pairs of a principal and a host have rules for it."""

    def change(self, rule: Rule, *, is_there: bool) -> None:
        whose = rule.principal, rule.host
        owned = self.owned.get(whose)
        if owned is None:
            owned = self.owned[whose] = _Owned()
        if owned.change(rule, is_there=is_there):
            name, difference = rule.resource_name, 1 if is_there else -1
            if rule.pattern is _PREFIXED:
                self.prefixes[name] += difference
            else:
                self.literal[name] += difference
                if not self.literal[name]:
                    del self.literal[name]
        if not owned:
            del self.owned[whose]

    def matching(self, principal: str, host: str) -> Iterator[tuple[_Whose, _Owned]]:
        for whose in _applying(principal, host):
            owned = self.owned.get(whose)
            if owned is not None:
                yield whose, owned


def _changed(before: int, bit: int, *, is_there: bool) -> int:
    if not is_there:
        return before & ~bit
    return before | bit if before else bit


def _applying(principal: str, host: str) -> tuple[_Whose, ...]:
    return (
        (principal, WILDCARD),
        (principal, host),
        (EVERYBODY, WILDCARD),
        (EVERYBODY, host),
    )


class RuleIndex:
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
        """Add a rule, unless it exists."""
        count = len(self._rules)
        # `setdefault` hashes the rule only once; hashing is most of the work.
        self._rules.setdefault(rule)
        if len(self._rules) > count:
            self._types[rule.resource_type].change(rule, is_there=True)

    def remove(self, rule: Rule) -> None:
        if rule in self._rules:
            del self._rules[rule]
            self._types[rule.resource_type].change(rule, is_there=False)

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool | None:
        """Whether the rules allow the operation; None if no rule applies. A denying rule takes
        precedence over allowing rules.
        """
        of_type = self._types[kind]
        get = of_type.owned.get
        entries = map(get, _applying(principal, host))
        applying = [owned for owned in entries if owned is not None]
        denied = 0
        for owned in applying:
            denied |= owned.denied
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        # The bits that end the search: denying ones, or allowing ones if no rule denies.
        enough = denying if denied & denying else allowing
        bits = 0
        # Inlined from `matching`: this is most of the cost of an uncached decision.
        for owned in applying:
            literal = owned.literal
            if literal:
                bits |= literal.get(WILDCARD, 0) | literal.get(name, 0)
            if bits & enough:
                break
            if owned.prefixed is not None:
                bits |= owned.prefixed.united(name, enough)
                if bits & enough:
                    break
        if bits & denying:
            return False
        return True if bits & allowing else None

    def decide(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> DecidingRules | None:
        """Return the rules that explain the result of `allows`; None if no rule applies."""
        of_type = self._types[kind]
        denying, allowing = _DENYING[operation], _ALLOWING[operation]
        deciding: DecidingRules | None = None
        for whose, owned in of_type.matching(principal, host):
            for pattern, named, bits in owned.matching(name):
                if bits & denying:
                    return DecidingRules(_DENY, whose, pattern, named, bits & denying)
                if deciding is None and bits & allowing:
                    allowed = (bits & allowing) >> _ALLOWED
                    deciding = DecidingRules(_ALLOW, whose, pattern, named, allowed)
        return deciding

    def matches(self, kind: ResourceType, name: str) -> bool:
        """Whether a name matches any pattern at all, including patterns of other principals."""
        of_type = self._types[kind]
        return (
            WILDCARD in of_type.literal
            or name in of_type.literal
            or bool(of_type.prefixes.united(name, enough=-1))
        )

    def allows_some(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether a rule allows the operation on some pattern that no deny rule covers; a matching
        resource need not exist. Denying one name does not affect a wider pattern.
        """
        denying = _DENYING[operation]
        # The bits of the operation itself and of ALL; operations that imply it do not count here.
        allowing = denying << _ALLOWED
        allowed: list[tuple[PatternType, str]] = []
        denied: dict[PatternType, set[str]] = {pattern: set() for pattern in PatternType}
        for _, owned in self._types[kind].matching(principal, host):
            for pattern, name, bits in owned:
                if bits & denying:
                    denied[pattern].add(name)
                if bits & allowing:
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

        return not all(is_covered(*pattern) for pattern in allowed)
