"""The interface between connections, which transport frames, and the service that answers them."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kohort.broker.core.security.account import NO_ACCOUNTS, Accounts
from kohort.broker.core.security.authorizer import NOTHING_GRANTED, Granted
from kohort.broker.core.security.session import UNKNOWN, Session
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.later import Later
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode


class FramePart(NamedTuple):
    """An incomplete frame."""

    number: int
    """Differs from that of any other frame of the connection."""
    filled_bytes: int


class CloseConnection(Exception):  # noqa: N818 - an instruction, not an internal error
    """Raised by a service that can answer only by closing the connection, for example a failed
    Produce with acks=0. The text goes to the log.
    """

    def __init__(
        self,
        text: str,
        *,
        answer: "ResponseBuffers" = None,
        reason: CloseReason = CloseReason.BAD_REQUEST,
        is_told: bool = True,
    ) -> None:
        """`answer` is sent first. `is_told` is False if it has been logged already."""
        super().__init__(text)
        self.answer = answer
        self.reason = reason
        self.is_told = is_told


class TokenAnswer(NamedTuple):
    """The response to a client's authentication token."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    """When the client has to re-authenticate; 0 for never."""


class Authentication(Protocol):
    """The authentication of one connection's client."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The mechanisms of the listener."""
        ...

    def choose(self, mechanism: str, *, tokens_are_bare: bool) -> ErrorCode:
        """Start an attempt; `tokens_are_bare` if tokens follow without being wrapped in
        requests.
        """
        ...

    def take(self, token: bytes) -> "TokenAnswer | Later[TokenAnswer]":
        """Process the client's next token."""
        ...

    def refusal_delay_ms(self) -> int:
        """Note a failure, by bytes that are no frame; return after how many milliseconds to close
        the connection.
        """
        ...


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """A client connection as handlers see it; hashable by identity (owner of parked requests)."""

    peer_host: str
    """Host of the client in Kafka's format: "/127.0.0.1"."""
    session: Session = UNKNOWN
    """The client's principal and listener; replaced as a whole."""
    authentication: Authentication | None = None
    """The authentication in progress; None if the listener requires none."""
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    """Name and version as sent with ApiVersions v3 and later (KIP-511)."""
    active_as: str | None = None
    """Set by the service to the client id when the client does what counts as activity, and reset
    by the server's rounds through the connections; see `activity`."""
    throttle_ms: int = 0
    """Set by the service with a response: once that is written, the connection neither reads nor
    executes anything for this time (KIP-219), and then resets it."""
    worked_s: float = 0.0
    """Seconds that the request under way has worked since it first waited, for as long as its
    client has a limit for time. Added by the service, and reset when the next one first waits."""
    accounts: Accounts = NO_ACCOUNTS
    accounts_of: Session = UNKNOWN
    """The accounts of the client that sent the last request, and the session that they were looked
    up for: they are those of no other. Set by the service if clients have quotas."""
    granted: Granted = field(default_factory=lambda: NOTHING_GRANTED)
    granted_to: Session = UNKNOWN
    """What is known to be granted by access rules, and the session that it is granted to: it is so
    to no other. Set by the service if there are rules."""
    sends_files: bool = False
    """Whether responses may contain file ranges, which are sent without being read."""


class FileRange(Protocol):
    """A range of a file that can be sent without being read. Sent or taken bytes are removed from
    it.

    Methods raise OSError, also if the file has become too short.
    """

    def __len__(self) -> int:
        """Bytes that are left."""
        ...

    def send_to(self, socket_number: int) -> int:
        """Send what a non-blocking socket takes now; BlockingIOError if that is nothing."""
        ...

    def take(self, byte_count: int) -> bytes:
        """Read up to `byte_count` bytes from the front; for another thread, as it may wait for the
        disk.
        """
        ...

    def is_cached(self) -> bool:
        """Whether the rest is in the page cache, so that sending it does not wait for the disk."""
        ...


Part = Buffer | FileRange
ResponseBuffers = list[Buffer] | None
"""A response frame as a list of buffers, size header included; None for no response.

If the connection `sends_files`, a `FileRange` may take the place of a large buffer."""


class Service(Protocol):
    """Processes the frames of connections."""

    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Later[ResponseBuffers]:
        """Answer one request. The service may keep `frame`, but not modify it. A deferred answer is
        cancelled by the connection when the client disconnects, and may fail in the same way.

        Raises:
            CloseConnection: the only possible answer is closing the connection.
        """
        ...

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Drop whatever waits for this connection, which has closed."""
        ...


class TlsPeer(Protocol):
    """The client of a complete TLS handshake."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER; None without one."""
        ...

    @property
    def version(self) -> str:
        """The negotiated TLS version and cipher."""
        ...


class NewConnection(Protocol):
    """A connection that is not authenticated yet, as TLS or its first service sees it."""

    info: ConnectionInfo
    ip: str

    def let_in(self, session: Session, service: Service | None = None) -> None:
        """Serve requests of `session` from now on, by `service` or the default one."""
        ...
