"""The context of a request: its sender, and the broker's services."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar

from kohort.broker.core.security.session import CLUSTER_NAME, Session
from kohort.broker.dispatch.encoded import EncodedResponse, TopicAnswers
from kohort.broker.network.connection.limits import Activity
from kohort.broker.network.service import ConnectionInfo
from kohort.broker.runtime.deferred import Deferred, Tasks
from kohort.broker.runtime.fair_lock import FairLock
from kohort.broker.runtime.peer_log import PeerLog
from kohort.protocol.framing import RequestHeader
from kohort.protocol.limits import INFLATED_BYTES_LIMIT
from kohort.protocol.schema import VersionRange

# Importing access rules takes 2 ms; an authorizer and handlers that check resources do it.
if TYPE_CHECKING:
    from kohort.broker.config import BrokerConfig
    from kohort.broker.coordinator import GroupCoordinator
    from kohort.broker.coordinator.requests.classic import ClassicRequests
    from kohort.broker.coordinator.requests.consumer import ConsumerRequests
    from kohort.broker.coordinator.requests.share import ShareRequests
    from kohort.broker.core.purgatory import Purgatory
    from kohort.broker.core.security.acls import Operation, ResourceType
    from kohort.broker.core.transaction.client import Client
    from kohort.broker.dispatch.access import Access
    from kohort.broker.runtime.clock import Clock
    from kohort.broker.security.client_quotas import ClientQuotas
    from kohort.broker.security.users import Users
    from kohort.broker.share.delivery import ShareDelivery
    from kohort.broker.topics.manager import TopicManager
    from kohort.broker.transactions.transactions import Transactions


T = TypeVar("T")


class MeteredCoroutine(Coroutine[Any, Any, T]):
    """Adds the running time of a coroutine to `ConnectionInfo.worked_s`.

    A request may run in many event loop iterations; it is charged for all its running time.
    """

    __slots__ = ("_connection", "_work")

    def __init__(self, work: Coroutine[Any, Any, T], connection: ConnectionInfo) -> None:
        self._work = work
        self._connection = connection

    def send(self, value: Any) -> Any:  # noqa: ANN401 - as a coroutine's.
        begun_s = perf_counter()
        try:
            return self._work.send(value)
        finally:
            self._connection.worked_s += perf_counter() - begun_s

    def throw(
        self,
        kind: Any,  # noqa: ANN401 - as a coroutine's.
        value: object = None,
        traceback: TracebackType | None = None,
        /,
    ) -> Any:  # noqa: ANN401
        begun_s = perf_counter()
        try:
            if value is None and traceback is None:
                # `throw` with three arguments is deprecated since Python 3.12.
                return self._work.throw(kind)
            return self._work.throw(kind, value, traceback)
        finally:
            self._connection.worked_s += perf_counter() - begun_s

    def close(self) -> None:
        self._work.close()

    def __await__(self) -> Generator[Any, Any, T]:
        return self._work.__await__()


OFFLOADED_READS: Final = 2
"""Maximum number of concurrent log reads in the thread pool, which has four threads."""


class Coordinators(Protocol):
    """The coordinators of a broker; see :mod:`kohort.broker.assembly.coordinators`."""

    @property
    def groups(self) -> GroupCoordinator: ...
    @property
    def transactions(self) -> Transactions:
        """Transactional ids, and the partitions in their transactions."""
        ...

    @property
    def share(self) -> ShareDelivery: ...


@dataclass(eq=False, repr=False)
class BrokerServices:
    """The components that handlers delegate to; wired in :mod:`kohort.broker.app`."""

    config: BrokerConfig
    clock: Clock
    purgatory: Purgatory
    topics: TopicManager
    coordinators: Callable[[], Coordinators]
    """Returns the coordinators; creates them at the first call."""
    node_id: int
    cluster_id: str
    advertised_host: str
    advertised_port: int
    """With `advertised_host`, the address of listeners that `advertised_by_listener` does not
    contain."""
    advertised_by_listener: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Advertised addresses by listener name, as clients in other networks may need another one."""
    users: Users | None = None
    """The users that can authenticate; None only in tests without users."""
    apis: Mapping[int, VersionRange] = field(default_factory=dict)
    """The versions listed by ApiVersions, by key, in the order of the response."""
    inflated_batch_bytes_max: int = INFLATED_BYTES_LIMIT
    """Decompressed size that a produced batch may have."""
    log: PeerLog | None = None
    """The rate-limited log for errors of clients; None only in tests."""
    large_batch: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by the one Produce request that validates a large batch over several loop iterations."""
    long_requests: FairLock = field(default_factory=FairLock)
    """Held by the one request that is executed over several loop iterations."""
    offloaded_reads: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(OFFLOADED_READS)
    )
    """Held by requests that read logs in the thread pool, to leave threads for fsyncs."""
    activity: Activity = field(default_factory=Activity)
    """When clients last fetched: a member that sends heartbeats but does not fetch has hung."""
    features: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Supported features by name: (minimum, maximum) version; see ApiVersions."""
    finalized_features: dict[str, int] = field(default_factory=dict)
    """Finalized feature levels by name; they decide which protocol variants clients use."""
    tasks: Tasks = field(default_factory=set)
    api_versions: dict[int, EncodedResponse] = field(default_factory=dict)
    topic_answers: TopicAnswers = field(default_factory=TopicAnswers)
    """Cached Metadata responses."""
    quotas: ClientQuotas | None = None
    access: Access | None = None
    """The authorizer; None if everything is allowed to everyone. Handlers call
    `RequestContext.may` or `RequestContext.require`."""

    @cached_property
    def groups(self) -> GroupCoordinator:
        return self.coordinators().groups

    @cached_property
    def transactions(self) -> Transactions:
        return self.coordinators().transactions

    @cached_property
    def share_delivery(self) -> ShareDelivery:
        """Share sessions and share-partitions."""
        return self.coordinators().share

    @cached_property
    def classic_groups(self) -> ClassicRequests:
        """Executes requests of the classic protocol; its module is imported on first use."""
        from kohort.broker.coordinator.requests.classic import ClassicRequests  # noqa: PLC0415

        return ClassicRequests(self.groups.host)

    @cached_property
    def consumer_groups(self) -> ConsumerRequests:
        """Executes requests of consumer groups; its module is imported on first use."""
        from kohort.broker.coordinator.requests.consumer import ConsumerRequests  # noqa: PLC0415

        return ConsumerRequests(
            self.groups.host,
            is_enabled="consumer" in self.config.group_coordinator_rebalance_protocols,
            assignors=self.config.group_consumer_assignors,
        )

    @cached_property
    def share_groups(self) -> ShareRequests:
        """Executes requests of share groups; its module is imported on first use."""
        from kohort.broker.coordinator.requests.share import ShareRequests  # noqa: PLC0415

        delivery = self.share_delivery
        return ShareRequests(
            self.groups.host, delivery.prepare, delivery.partitions.initializations.under_way
        )


@dataclass(slots=True, eq=False, repr=False)
class RequestContext:
    header: RequestHeader
    connection: ConnectionInfo
    broker: BrokerServices
    is_long: bool = False
    """Whether the request may have very many elements: its handler should return a generator of
    steps, unless the dispatcher splits the request."""

    @property
    def advertised(self) -> tuple[str, int]:
        """The advertised host and port of the client's listener."""
        broker = self.broker
        return broker.advertised_by_listener.get(
            self.connection.session.listener, (broker.advertised_host, broker.advertised_port)
        )

    @property
    def session(self) -> Session:
        """The client's principal and listener."""
        return self.connection.session

    def may(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the principal may perform an operation on a resource, existing or not. True if
        there is no authorizer.
        """
        access = self.broker.access
        if access is None:
            return True
        connection = self.connection
        session = connection.session
        # `granted` caches permissions, but is valid only for the session `granted_to`.
        if connection.granted_to is session and name in connection.granted.get(
            (operation, kind), ()
        ):
            return True
        is_allowed = access.may(session, self.header.api_key, operation, kind, name)
        access.keep(connection)
        return is_allowed

    def require(self, operation: Operation, kind: ResourceType, name: str = CLUSTER_NAME) -> None:
        """Raise KafkaError unless the principal may perform `operation` on the resource."""
        if self.broker.access is not None and not self.may(operation, kind, name):
            from kohort.broker.dispatch.access import denied  # noqa: PLC0415 - see the imports.

            raise denied(kind)

    def may_some(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether the principal may perform an operation on any resource of a type."""
        access = self.broker.access
        if access is None:
            return True
        return access.may_some(self.session, self.header.api_key, operation, kind)

    def sees(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Like `may`, but a denial is neither logged nor counted."""
        access = self.broker.access
        return access is None or access.sees(self.connection.session, operation, kind, name)

    def operations(self, kind: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Bit field of the operations that the principal may perform on a resource (KIP-430).
        Without an authorizer, all operations that apply to the resource type, as in Kafka.
        """
        access = self.broker.access
        if access is None:
            from kohort.broker.dispatch.access import ALL_OPERATIONS  # noqa: PLC0415 - see the imports.

            return ALL_OPERATIONS[kind]
        return access.operations(self.session, kind, name)

    @property
    def permissions_key(self) -> tuple[object, ...] | None:
        """Return a cache key for this client's permissions: all that they depend on besides
        operation and resource. None if there is no authorizer.
        """
        access = self.broker.access
        return None if access is None else access.permissions_key(self.session)

    def run(self, work: Coroutine[Any, Any, T], *, name: str) -> Deferred[T]:
        """Run a coroutine as a task, charging its running time to the client's request quota."""
        quotas = self.broker.quotas
        if quotas is not None and quotas.is_limiting:
            accounts = quotas.accounts(self.connection, self.header.client_id)
            if accounts.request is not None:
                work = MeteredCoroutine(work, self.connection)
        return Deferred.from_coroutine(work, self.broker.tasks, name=name)

    @property
    def client(self) -> Client:
        """The client id and address, which transactions record for display."""
        from kohort.broker.core.transaction.client import Client  # noqa: PLC0415 - see the imports.

        return Client(self.header.client_id or "", self.connection.peer_host)

    @property
    def api_version(self) -> int:
        return self.header.api_version
