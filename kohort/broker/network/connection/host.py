"""The interface of the server for its connections."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

if TYPE_CHECKING:
    from kohort.broker.network.connection.connection import Connection
    from kohort.broker.network.connection.files import FileReads
    from kohort.broker.network.connection.limits import Activity, NetworkLimits
    from kohort.broker.network.iteration import DisconnectQueue, IterationScheduler
    from kohort.broker.network.memory import RequestMemoryBudget, UnsentBytes
    from kohort.broker.network.metrics import NetworkMetrics
    from kohort.broker.network.service import Service
    from kohort.broker.runtime.peer_log import PeerLog


class Refusal(NamedTuple):
    config: str
    """The config that forbids the connection."""
    is_delayed: bool = False
    """Whether the host closes the connection after a delay."""


class ConnectionHost(Protocol):
    """The server: resources shared by all connections, and admission."""

    receive_buffer: memoryview
    limits: NetworkLimits
    service: Service
    metrics: NetworkMetrics
    log: PeerLog
    memory: RequestMemoryBudget
    unsent: UnsentBytes
    scheduler: IterationScheduler
    disconnects: DisconnectQueue
    reads: FileReads
    activity: Activity
    sends_files: bool
    """Whether responses may use sendfile(2) on connections without TLS."""

    def connection_made(self, connection: Connection) -> Refusal | None:
        """Admit the connection and return None, or return why not."""
        ...

    def connection_lost(self, connection: Connection) -> None:
        """Called once for each admitted connection."""
        ...

    def on_authenticated(self, connection: Connection) -> None:
        """Called after TLS and SASL are complete, and after each reauthentication."""
        ...
