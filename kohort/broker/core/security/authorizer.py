"""The authorizer: may this principal, from this host, do this operation on this resource (KIP-11).

The logic is that of Kafka's `StandardAuthorizer`. Super users may do everything, even what rules
deny them. Among the rules of all patterns that match the name, one that denies takes precedence
over those that allow; if none applies, the operation is denied, unless no pattern matches at all
and `allow.everyone.if.no.acl.found` is set.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from kohort.broker.core.security.acls import Operation, Permission, ResourceType, Rule, RuleFilter
from kohort.broker.core.security.rule_index import RuleIndex
from kohort.broker.core.security.session import (
    NOTHING_GRANTED,
    Granted,
    Principal,
    Right,
    Session,
)

ANSWERS_MAX: Final = 10_000
"""Maximum number of cached decisions; a full cache is emptied, as a decision takes microseconds."""
NAME_LENGTH_MAX: Final = 300
"""Longer names cannot be topics; decisions about them are not cached."""
_PROBE: Final = "hardcode"
"""The resource name that Kafka checks first, to see whether any rule applies to a principal."""


class _Decisions:
    """The cached decisions about one principal from one host."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed: dict[Right, set[str]] = {}
        self.denied: dict[Right, set[str]] = {}

    def find(self, right: Right, name: str) -> bool | None:
        """Whether the principal has this right on the resource; None if that is not cached."""
        names = self.allowed.get(right)
        if names is not None and name in names:
            return True
        names = self.denied.get(right)
        return False if names is not None and name in names else None

    def forget(self) -> None:
        """Clear in place, because connections hold references to `allowed`."""
        self.allowed.clear()
        self.denied.clear()


_NONE: Final = _Decisions()
"""The decisions about a principal for which nothing is cached."""


class Explanation(NamedTuple):
    allowed: bool
    reason: str
    """The deciding rule, or another reason, as text."""


class Authorizer:
    """Decides by the current ACL rules, and caches the decisions."""

    def __init__(
        self,
        *,
        super_users: Iterable[str] = (),
        allow_everyone_if_no_acl_found: bool = False,
        rules: Iterable[Rule] = (),
    ) -> None:
        self.super_users = frozenset(super_users)
        self.allow_everyone_if_no_acl_found = allow_everyone_if_no_acl_found
        self._index = RuleIndex()
        for rule in rules:
            self._index.add(rule)
        self._decisions: dict[tuple[Principal, str], _Decisions] = {}
        self._answer_count = 0
        self._some: dict[tuple[Principal, str, Operation, ResourceType], bool] = {}
        self._is_suspended = False
        self.revision = 0
        """Increases with every change of rules, for caches that depend on them."""

    @property
    def rule_count(self) -> int:
        return len(self._index)

    def change(self, *, added: Iterable[Rule] = (), removed: Iterable[Rule] = ()) -> None:
        """Add and remove rules; the next decision uses the result."""
        for rule in removed:
            self._index.remove(rule)
        for rule in added:
            self._index.add(rule)
        self._forget()
        self._some = {}
        self.revision += 1

    def suspend(self, *, is_suspended: bool) -> None:
        """While `is_suspended`, allow only super users, because rules may be missing."""
        if is_suspended is not self._is_suspended:
            self._is_suspended = is_suspended
            self.change()

    def rules(self) -> list[Rule]:
        """All current rules, oldest first."""
        return list(self._index)

    def found(self, wanted: RuleFilter) -> list[Rule]:
        """The rules that match a filter, oldest first."""
        return [rule for rule in self._index if wanted.finds(rule)]

    def has(self, rule: Rule) -> bool:
        return rule in self._index

    def allows(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the session's principal has this right on a resource, existing or not."""
        decisions = self._decisions.get((session.principal, session.host), _NONE)
        known = decisions.find((operation, kind), name)
        return self._decide(session, (operation, kind), name) if known is None else known

    def granted(self, session: Session) -> Granted:
        """Return the cached permissions of a session's principal. Share the mapping with no other
        session: further decisions add to it, and it is emptied when rules change.
        """
        decisions = self._decisions.get((session.principal, session.host))
        return NOTHING_GRANTED if decisions is None else decisions.allowed

    def _decide(self, session: Session, right: Right, name: str) -> bool:
        principal, host = session.principal, session.host
        allowed = self._is_allowed(principal, host, *right, name)
        if len(name) <= NAME_LENGTH_MAX:
            if self._answer_count >= ANSWERS_MAX:
                self._forget()
            decisions = self._decisions.get((principal, host))
            if decisions is None:
                decisions = self._decisions[principal, host] = _Decisions()
            of_name = decisions.allowed if allowed else decisions.denied
            of_name.setdefault(right, set()).add(name)
            self._answer_count += 1
        return allowed

    def _forget(self) -> None:
        decisions, self._decisions = self._decisions, {}
        for decision in decisions.values():
            decision.forget()
        self._answer_count = 0

    def _is_allowed(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        who = str(principal)
        if who in self.super_users:
            return True
        if self._is_suspended:
            return False
        allowed = self._index.allows(who, host, operation, kind, name)
        if allowed is None:
            return self.allow_everyone_if_no_acl_found and not self._index.matches(kind, name)
        return allowed

    def explain(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceType,
        name: str,
    ) -> Explanation:
        """Return the decision of `allows` with its reason, never from the cache."""
        who = str(principal)
        if who not in self.super_users and not self._is_suspended:
            deciding = self._index.decide(who, host, operation, kind, name)
            if deciding is not None:
                return Explanation(
                    deciding.permission is Permission.ALLOW, str(deciding.rule(kind))
                )
        allowed = self._is_allowed(principal, host, operation, kind, name)
        return Explanation(allowed, self._reason(principal, kind, name))

    def _reason(self, principal: Principal, kind: ResourceType, name: str) -> str:
        """The reason for the decision if no rule applies."""
        if str(principal) in self.super_users:
            return "super user"
        if self._is_suspended:
            return "rules were lost, and the remaining ones have not been confirmed"
        if self._index.matches(kind, name):
            return "no rule of the matching patterns applies"
        if self.allow_everyone_if_no_acl_found:
            return "no pattern matches, and allow.everyone.if.no.acl.found is set"
        return "no pattern matches"

    def allows_some(self, session: Session, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal has this right on at least one resource, existing or not."""
        question = (session.principal, session.host, operation, kind)
        known = self._some.get(question)
        if known is None:
            known = self.allows(session, operation, kind, _PROBE) or (
                not self._is_suspended
                and self._index.allows_some(str(session.principal), session.host, operation, kind)
            )
            if len(self._some) >= ANSWERS_MAX:
                self._some = {}
            self._some[question] = known
        return known

    def operations(
        self, session: Session, kind: ResourceType, name: str, applicable: Sequence[Operation]
    ) -> int:
        """The operations that the principal may perform, as the protocol's bit field (KIP-430)."""
        return sum(
            1 << operation
            for operation in applicable
            if self.allows(session, operation, kind, name)
        )
