"""The parts of a broker that the console reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from kohort.broker.metrics.partitions import readable
from kohort.broker.metrics.source import BrokerSource

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from kohort.broker.console.holding import Holding
    from kohort.broker.console.lag_history import LagHistory
    from kohort.broker.coordinator.coordinator import GroupCoordinator
    from kohort.broker.core.security.acls import Operation, ResourceType
    from kohort.broker.groups_seen import GroupsSeen, Readable, RebalancesSeen, SharesSeen
    from kohort.broker.http.messages import HttpRequest
    from kohort.broker.runtime.clock import Clock


class GroupsSource(Protocol):
    """The parts of a broker or of `kohort watch` that the group pages read, on the event loop."""

    @property
    def groups(self) -> GroupsSeen: ...
    @property
    def history(self) -> RebalancesSeen: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def executor(self) -> Executor: ...
    @property
    def lags(self) -> LagHistory: ...
    @property
    def holding(self) -> Holding | None:
        """The open transactions, None if they are not known."""
        ...

    @property
    def shares(self) -> SharesSeen: ...

    def readable(self, topic: str, index: int) -> Readable | None:
        """Return the readable offsets of a partition, None if they are not known."""
        ...


@dataclass(frozen=True)
class ConsoleSource(BrokerSource):
    """The parts of a broker that the console reads, only on the event loop's thread."""

    lags: LagHistory
    cluster_id: str
    listeners: list[dict[str, str]]
    """Name, security protocol, address and advertised address of each listener."""
    holding: Holding
    coordinator: GroupCoordinator
    allows_write: bool
    """Whether the console has pages that change something (`kohort.console.write`)."""
    is_open_to_anonymous: bool
    """Whether unauthenticated clients may read and write everything on some Kafka listener. If not,
    the console shows records only to authenticated requesters."""
    began_ms: int
    """Wall time at which the broker began to serve."""

    def readable(self, topic: str, index: int) -> Readable | None:
        return readable(self.topics, topic, index)

    def may(
        self, request: HttpRequest, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether the requester may perform `operation` on the resource, as a client with the same
        principal; a denial is logged.

        Without authentication on this port, the requester has the rights of an anonymous client.
        """
        if request.requester is None:
            return self.is_open_to_anonymous
        return request.requester.may(operation, kind, name)
