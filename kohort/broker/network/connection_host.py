"""What all connections share, and what becomes of a new one."""

from typing import NamedTuple, Protocol, TypeVar

from kohort.broker.network.activity import Activity
from kohort.broker.network.departures import Departures
from kohort.broker.network.file_sending import Reads
from kohort.broker.network.limits import NetworkLimits
from kohort.broker.network.memory import RequestMemoryBudget, UnsentBytes
from kohort.broker.network.metrics import NetworkMetrics
from kohort.broker.network.service import Service
from kohort.broker.network.turns import Turns
from kohort.broker.runtime.peer_log import PeerLog

C_contra = TypeVar("C_contra", contravariant=True)


class Refusal(NamedTuple):
    """Why a connection is not admitted."""

    because_of: str
    """The config that forbids it."""
    is_held: bool = False
    """Whether it is closed later, by the host."""


class ConnectionHost(Protocol[C_contra]):
    """The server, to its connections."""

    receive_buffer: memoryview
    limits: NetworkLimits
    service: Service
    metrics: NetworkMetrics
    log: PeerLog
    memory: RequestMemoryBudget
    unsent: UnsentBytes
    turns: Turns
    departures: Departures
    reads: Reads
    activity: Activity
    sends_files: bool
    """Whether sockets are written to as they are, so that the kernel may write to them as well."""

    def connection_made(self, connection: C_contra) -> Refusal | None:
        """Admit `connection`, or refuse it."""
        ...

    def connection_lost(self, connection: C_contra) -> None:
        """Called once for each that was admitted."""
        ...

    def let_in(self, connection: C_contra) -> None:
        """TLS and SASL are over; called again after each reauthentication."""
        ...
