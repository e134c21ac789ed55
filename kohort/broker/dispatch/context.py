"""What a handler is given beside the request: who asked, and the broker to answer from."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from kohort.broker.core.partition.verdict import ValidationPolicy
from kohort.broker.core.security.acls import CLUSTER_NAME, Operation, ResourceType
from kohort.broker.core.security.session import Session
from kohort.broker.core.transaction.requests import Client
from kohort.broker.dispatch.access import DENIED, TEXTS, Access
from kohort.broker.dispatch.encoded import EncodedResponse, TopicAnswers
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.network.last_fetches import LastFetches
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.later import Tasks
from kohort.protocol.errors import KafkaError
from kohort.protocol.framing import RequestHeader
from kohort.protocol.schema import VersionRange

if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.coordinator import GroupCoordinator
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.security.client_quotas import ClientQuotas
    from kohort.broker.security.users import Users
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.transactions.transactions import Transactions


READS_ASIDE: Final = 2
"""Reads of logs on other threads at once; there are four of those."""


@dataclass(slots=True, eq=False)
class BrokerServices:
    """The parts of the broker that handlers delegate to; wired in :mod:`kohort.broker.app`."""

    config: BrokerConfig
    clock: Clock
    purgatory: Purgatory
    topics: TopicManager
    groups: GroupCoordinator
    transactions: Transactions
    """Transactional ids, and which partitions are in whose transaction."""
    node_id: int
    cluster_id: str
    advertised_host: str
    advertised_port: int
    """Where clients are told to connect to, unless the next says otherwise."""
    advertised_by_listener: dict[str, tuple[str, int]] = field(default_factory=dict)
    """The same for clients that came by a certain listener, by its name: the name of this machine
    may differ from network to network."""
    users: Users | None = None
    """The users that can authenticate; None only where there is no subject, as in tests."""
    apis: Mapping[int, VersionRange] = field(default_factory=dict)
    """What ApiVersions tells: versions by key, in its order."""
    validation: ValidationPolicy = field(default_factory=ValidationPolicy)
    """How closely produced batches are looked at."""
    large_batch: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one Produce request with a batch that is validated over several turns of the
    loop."""
    reads_aside: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(READS_ASIDE))
    """Held by requests that read logs on other threads, so that fsyncs find a thread as well."""
    history: RebalanceHistory = field(default_factory=RebalanceHistory)
    """Why the groups rebalanced."""
    fetches: LastFetches = field(default_factory=LastFetches)
    """When clients were last seen to fetch."""
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Supported features by name: (minimum, maximum) version; see ApiVersions."""
    finalized_features: dict[str, int] = field(default_factory=dict)
    """Levels of those that are in use, by name; clients act on them."""
    tasks: Tasks = field(default_factory=set)
    """Handlers that have to wait, at work."""
    api_versions: dict[int, EncodedResponse] = field(default_factory=dict)
    """The answer that lists `apis` and `features`, by version."""
    topic_answers: TopicAnswers = field(default_factory=TopicAnswers)
    """What Metadata was answered of late."""
    quotas: ClientQuotas | None = None
    """Limits on what clients may use."""
    access: Access | None = None
    """The rights of clients; None where everybody may do everything. Handlers look here before they
    ask `RequestContext.may` or `RequestContext.require`, so that to ask costs nothing where there
    is nobody to be asked."""


@dataclass(slots=True, eq=False)
class RequestContext:
    """One request's surroundings."""

    header: RequestHeader
    connection: ConnectionInfo
    broker: BrokerServices

    @property
    def advertised(self) -> tuple[str, int]:
        """Host and port that this client is told to connect to: those of the listener it used."""
        broker = self.broker
        return broker.advertised_by_listener.get(
            self.connection.session.listener, (broker.advertised_host, broker.advertised_port)
        )

    @property
    def session(self) -> Session:
        """The principal that asks, and where it comes from."""
        return self.connection.session

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may do this to a resource, be there one or not."""
        access = self.broker.access
        return access is None or access.may(
            self.connection.session, self.header.api_key, operation, kind, name
        )

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Go on only if the principal may do this. Raises KafkaError, with which the request as a
        whole is answered, each of its items as it is named.
        """
        if not self.may(operation, kind, name):
            raise KafkaError(DENIED[kind], TEXTS[kind])

    def sees(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may know of a resource that it has not named; never logged."""
        access = self.broker.access
        return access is None or access.sees(self.connection.session, operation, kind, name)

    @property
    def client(self) -> Client:
        """The sender, for those that are told about transactions."""
        return Client(self.header.client_id or "", self.connection.peer_host)

    @property
    def api_version(self) -> int:
        """Version of the request, which is also the version of the response."""
        return self.header.api_version
