"""Access rules as clients create and list them: their fields, and filters that select them.

A rule (Kafka: ACL binding) allows or denies a principal, from a host, an operation on the resources
of one type whose names match a pattern. Numbers are those of the protocol (KIP-11, KIP-290).
"""

from collections.abc import Mapping
from enum import IntEnum
from typing import Any, Final, NamedTuple, TypeVar

from kohort.broker.core.security.session import CLUSTER_NAME

WILDCARD: Final = "*"
"""As a name, all resources of a type; as a host, every host."""
EVERYBODY: Final = "User:*"
"""The principal of rules for every client, including anonymous ones."""


class Number(IntEnum):
    # Enum's own hash is a Python function, and these members are in every cache key.
    __hash__ = int.__hash__


N = TypeVar("N", bound=Number)


class ResourceType(Number):
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(Number):
    LITERAL = 3
    PREFIXED = 4


class Operation(Number):
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


OPERATIONS: Final[Mapping[ResourceType, tuple[Operation, ...]]] = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DELETE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.GROUP: (
        Operation.READ,
        Operation.DELETE,
        Operation.DESCRIBE,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
    ),
    ResourceType.CLUSTER: (
        Operation.CREATE,
        Operation.ALTER,
        Operation.DESCRIBE,
        Operation.CLUSTER_ACTION,
        Operation.DESCRIBE_CONFIGS,
        Operation.ALTER_CONFIGS,
        Operation.IDEMPOTENT_WRITE,
    ),
    ResourceType.TRANSACTIONAL_ID: (
        Operation.WRITE,
        Operation.DESCRIBE,
        Operation.TWO_PHASE_COMMIT,
    ),
    ResourceType.DELEGATION_TOKEN: (Operation.DESCRIBE,),
    ResourceType.USER: (Operation.CREATE_TOKENS, Operation.DESCRIBE_TOKENS),
}
"""Operations that requests need on each type, besides ALL. A rule for any other operation is kept,
as in Kafka, and never applies."""


class Permission(Number):
    DENY = 2
    ALLOW = 3


class Rule(NamedTuple):
    """One access rule, identified by all of its fields."""

    resource_type: ResourceType
    resource_name: str
    pattern: PatternType
    principal: str
    """The text ``User:alice``, compared exactly; `EVERYBODY` for all."""
    host: str
    """A numeric address, compared as text, or ``*``."""
    operation: Operation
    permission: Permission

    def __str__(self) -> str:
        """The rule in a readable line: ``ALLOW User:a READ on prefixed TOPIC "in-" from *``."""
        return (
            f"{self.permission.name} {self.principal} {self.operation.name} on "
            f'{self.pattern.name.lower()} {self.resource_type.name} "{self.resource_name}" '
            f"from {self.host}"
        )


ANY: Final = 1
MATCH: Final = 2
"""Pattern type of a filter that selects all rules which apply to its resource name."""


class UnknownFilterError(Exception):
    """A filter contains an undefined enum number; the message is Kafka's."""


class RuleFilter(NamedTuple):
    """Selects rules. None matches any text; numbers are those of the protocol, 1 matches any."""

    resource_type: int = ANY
    resource_name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def check(self) -> None:
        """Raise UnknownFilterError if the filter contains an undefined enum number."""
        if self.resource_type not in _TYPES or self.pattern not in _PATTERNS:
            raise UnknownFilterError("Unknown patternFilter.")
        if self.operation not in _OPERATIONS or self.permission not in _PERMISSIONS:
            raise UnknownFilterError("Unknown entryFilter.")

    def finds(self, rule: Rule) -> bool:
        """Whether the filter selects a rule. Operation ALL selects rules for ALL, not all rules."""
        return (
            self.resource_type in {ANY, rule.resource_type}
            and self.operation in {ANY, rule.operation}
            and self.permission in {ANY, rule.permission}
            and self.principal in {None, rule.principal}
            and self.host in {None, rule.host}
            and self._names(rule)
        )

    def only(self) -> Rule | None:
        """The only rule that the filter can select, whether or not the rule exists; None if the
        filter can select several, or none.
        """
        if None in self:
            return None
        try:
            return rule_of(*self)  # type: ignore[arg-type]  # No text is None.
        except InvalidRuleError:
            return None

    def _names(self, rule: Rule) -> bool:
        name = self.resource_name
        if self.pattern not in {ANY, MATCH, rule.pattern}:
            return False
        if name is None or rule.resource_name == name:
            return True
        if self.pattern != MATCH:
            return False
        if rule.pattern is PatternType.PREFIXED:
            return name.startswith(rule.resource_name)
        return rule.resource_name == WILDCARD


_TYPES: Final = frozenset({ANY, *ResourceType})
_PATTERNS: Final = frozenset({ANY, MATCH, *PatternType})
_OPERATIONS: Final = frozenset({ANY, *Operation})
_PERMISSIONS: Final = frozenset({ANY, *Permission})


# Thousands of rules are read at startup; an enum look-up takes four times as long.
_MEMBERS: Final[Mapping[type[Number], Mapping[int, Any]]] = {
    kind: {int(member): member for member in kind}
    for kind in (ResourceType, PatternType, Operation, Permission)
}


class InvalidRuleError(Exception):
    """An invalid rule; the text is for the client that sent the rule."""


def rule_of(
    resource_type: int,
    resource_name: str,
    pattern: int,
    principal: str,
    host: str,
    operation: int,
    permission: int,
) -> Rule:
    """The rule that a client's request describes. Raises InvalidRuleError.

    Rules that can never match are valid: with an operation that the type does not have, a host that
    is not an address, or a principal of another type.
    """
    if resource_type == ResourceType.CLUSTER and resource_name not in {CLUSTER_NAME, ""}:
        raise InvalidRuleError(f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}")
    if not resource_name:
        raise InvalidRuleError("Invalid empty resource name")
    kind = _member(ResourceType, resource_type)
    pattern_type = _member(PatternType, pattern)
    done = _member(Operation, operation)
    effect = _member(Permission, permission)
    if ":" not in principal:
        raise InvalidRuleError(
            f"Could not parse principal from `{principal[:100]}` (no colon is present separating "
            "the principal type from the principal name)"
        )
    if not host:
        raise InvalidRuleError("Invalid empty host")
    return Rule(kind, resource_name, pattern_type, principal, host, done, effect)


def _member(kind: type[N], number: int) -> N:
    member: N | None = _MEMBERS[kind].get(number)
    if member is None:
        raise InvalidRuleError(f"Invalid {kind.__name__} {number}")
    return member
