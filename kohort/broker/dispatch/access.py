"""Authorizes requests; logs and counts denials. An `Access` exists only if an authorizer is
configured.
"""

import logging
from collections.abc import Mapping
from typing import Final

from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.security import parse_super_users
from kohort.broker.core.security.acls import EVERYBODY, OPERATIONS, Operation, ResourceType
from kohort.broker.core.security.authorizer import Authorizer
from kohort.broker.core.security.session import ANONYMOUS, Session
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.clock import Clock
from kohort.broker.security.rules import AccessRules
from kohort.broker.storage.metadata.store import ACCESS_LOSS
from kohort.broker.topics.manager import TopicManager
from kohort.protocol.errors import ErrorCode, KafkaError

logger = logging.getLogger("kohort.authorizer")

HTTP_API: Final = -1
"""Used for the HTTP API in place of an API key."""

LINES_PER_SECOND: Final = 200
"""Limit for logged denials; one request may contain fifty thousand denied names."""
NAME_SHOWN_MAX: Final = 250
REASON_SHOWN_MAX: Final = 1_000

Denials = dict[tuple[str, str], int]
"""Counts of denials, by API and type of resource."""

_WORDS: Final = {kind: kind.name.title().split("_") for kind in ResourceType}
_SHOWN: Final = {kind: "".join(words) for kind, words in _WORDS.items()}
"""Names of resource types as Kafka writes them, such as TransactionalId."""

ALL_OPERATIONS: Final = {
    kind: sum(1 << operation for operation in operations) for kind, operations in OPERATIONS.items()
}
"""By type of resource, the bit field of all operations that apply to it."""


def denied(kind: ResourceType) -> KafkaError:
    """Return the error for a principal without permission, with Kafka's message."""
    code = ErrorCode[f"{kind.name}_AUTHORIZATION_FAILED"]
    return KafkaError(code, f"{' '.join(_WORDS[kind])} authorization failed.")


_FOR_NOBODY: Final = (
    "authorizer.class.name is set, and no listener finds out who clients are: all would be"
    " User:ANONYMOUS, and denied everything. Add a listener with SASL, or set ssl.client.auth"
    " of one with SSL, or add User:ANONYMOUS to super.users"
)


def make_access(
    config: BrokerConfig,
    topics: TopicManager,
    api_names: Mapping[int, str],
    clock: Clock,
    denied: Denials,
) -> "Access":
    """Create the `Access` of the configured authorizer; it counts denials in `denied`.

    Raises:
        ConfigError: no client could ever be allowed anything.
    """
    authorizer = Authorizer(
        super_users=parse_super_users(config.super_users),
        allow_everyone_if_no_acl_found=config.allow_everyone_if_no_acl_found,
    )
    rules = AccessRules(authorizer, topics.disk.data.store, topics.disk, clock)
    _suspend_after_a_loss(authorizer, topics)
    if not (_has_names(topics.settings) or _admits_anonymous(authorizer)):
        raise ConfigError([_FOR_NOBODY])
    if not (
        authorizer.super_users or authorizer.rule_count or authorizer.allow_everyone_if_no_acl_found
    ):
        logger.warning(
            "authorizer.class.name is set, and there are neither super.users nor rules: no client "
            "may do anything, nor make the first rule. Set super.users=User:NAME"
        )
    return Access(rules, clock, api_names, denied)


def _suspend_after_a_loss(authorizer: Authorizer, topics: TopicManager) -> None:
    """Allow only super users if rules may have been lost, until an operator has confirmed the
    remaining rules.

    Inspecting the remaining rules cannot show that a denying rule is missing.
    """
    loss = topics.disk.data.store.properties(ACCESS_LOSS).get(ACCESS_LOSS)
    settings = topics.settings
    if loss is None:
        return

    def look() -> None:
        confirmed = settings.config.kohort_access_loss_confirmed
        authorizer.suspend(is_suspended=confirmed != loss)

    look()
    settings.on_change(look)
    if settings.config.kohort_access_loss_confirmed != loss:
        logger.error(
            "Access rules may have been lost with the metadata: only super users may do"
            " anything. When the rules are as they should be, set kohort.access.loss.confirmed=%s",
            loss,
        )


def _has_names(settings: CurrentConfig) -> bool:
    """Whether any listener identifies its clients, by SASL or by certificates."""

    def asks(listener: str) -> bool:
        protocol = settings.config.protocol_of(listener)
        if protocol == "SSL":
            return settings.of_listener(listener).ssl_client_auth != "none"
        return protocol != "PLAINTEXT"

    return any(asks(endpoint.listener) for endpoint in settings.config.listener_endpoints)


def _admits_anonymous(authorizer: Authorizer) -> bool:
    anonymous = str(ANONYMOUS)
    return (
        authorizer.allow_everyone_if_no_acl_found
        or anonymous in authorizer.super_users
        or any(rule.principal in {anonymous, EVERYBODY} for rule in authorizer.rules())
    )


class Access:
    """Authorizes requests, and records denials."""

    def __init__(
        self, rules: AccessRules, clock: Clock, api_names: Mapping[int, str], denied: Denials
    ) -> None:
        """``api_names`` maps API keys to names; ``denied`` receives the counts of denials."""
        self.rules = rules
        self._authorizer = rules.authorizer
        self._clock = clock
        self._api_names = {HTTP_API: "HTTP", **api_names}
        self._denied = denied
        self._second = 0
        self._lines = 0

    def may(
        self, session: Session, api: int, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether the principal may perform an operation; a denial is logged and counted."""
        if self._authorizer.allows(session, operation, kind, name):
            if logger.isEnabledFor(logging.DEBUG):
                self._write(logging.DEBUG, session, api, operation, kind, name)
            return True
        self._note_denial(session, api, operation, kind, name)
        return False

    def keep(self, connection: ConnectionInfo) -> None:
        """Cache the session's permissions until rules change, unless grants are logged."""
        if not logger.isEnabledFor(logging.DEBUG):
            session = connection.session
            connection.granted, connection.granted_to = self._authorizer.granted(session), session

    def sees(self, session: Session, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether to include a resource in a list; a denial is neither logged nor counted."""
        return self._authorizer.allows(session, operation, kind, name)

    def may_some(
        self, session: Session, api: int, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether the principal may perform an operation on any resource of a type."""
        if self._authorizer.allows_some(session, operation, kind):
            return True
        self._note_denial(session, api, operation, kind, "*")
        return False

    def permissions_key(self, session: Session) -> tuple[object, ...]:
        """Return a cache key for the session: principal, host, and revision of the access rules."""
        return session.principal, session.host, self._authorizer.revision

    def operations(self, session: Session, kind: ResourceType, name: str) -> int:
        """Bit field of the operations that the principal may perform (KIP-430); 0 for the cluster
        if the principal may not describe it.
        """
        allowed = self._authorizer.operations(session, kind, name, OPERATIONS[kind])
        is_hidden = kind is ResourceType.CLUSTER and not allowed & (1 << Operation.DESCRIBE)
        return 0 if is_hidden else allowed

    def _note_denial(
        self, session: Session, api: int, operation: Operation, kind: ResourceType, name: str
    ) -> None:
        counted = self._api_names.get(api, str(api)), _SHOWN[kind]
        self._denied[counted] = self._denied.get(counted, 0) + 1
        second = self._clock.monotonic_ms() // 1_000
        if second != self._second:
            left_out = self._lines - LINES_PER_SECOND
            if left_out > 0:
                logger.info("%d more denials were not logged", left_out)
            self._second, self._lines = second, 0
        self._lines += 1
        if self._lines <= LINES_PER_SECOND:
            self._write(logging.INFO, session, api, operation, kind, name)

    def _write(
        self,
        level: int,
        session: Session,
        api: int,
        operation: Operation,
        kind: ResourceType,
        name: str,
    ) -> None:
        explained = self._authorizer.explain(session.principal, session.host, operation, kind, name)
        logger.log(
            level,
            "Principal = %s is %s operation = %s from host = %s on resource = %s:LITERAL:%s"
            " for request = %s: %s",
            _plain(str(session.principal)),
            "Allowed" if explained.allowed else "Denied",
            operation.name,
            session.host,
            _SHOWN[kind],
            _plain(name),
            self._api_names.get(api, api),
            _plain(explained.reason, REASON_SHOWN_MAX),
        )


def _plain(text: str, most: int = NAME_SHOWN_MAX) -> str:
    """Return client-supplied text in one line and of limited length."""
    return text[:most].encode("unicode_escape").decode("ascii")
