"""The interface between connections, which transport frames, and the service that answers them; and
the configuration of a listener, which its connections share.
"""

import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kohort.broker.core.security.account import NO_ACCOUNTS, Accounts
from kohort.broker.core.security.session import NOTHING_GRANTED, UNKNOWN, Granted, Session
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.deferred import Deferred
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode


class FramePart(NamedTuple):
    number: int
    """Identifies the frame among all frames of the connection."""
    filled_bytes: int


class CloseConnection(Exception):  # noqa: N818 - an instruction, not an internal error
    """The only possible response is to close the connection. The text is logged."""

    def __init__(
        self,
        text: str,
        *,
        answer: "ResponseBuffers" = None,
        reason: CloseReason = CloseReason.BAD_REQUEST,
        should_log: bool = True,
    ) -> None:
        """`answer` is sent before the close. `should_log` is False if `text` has been logged
        already.
        """
        super().__init__(text)
        self.answer = answer
        self.reason = reason
        self.should_log = should_log


class TokenAnswer(NamedTuple):
    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    """Time until the client has to reauthenticate; 0 for never."""


class Authentication(Protocol):
    @property
    def mechanisms(self) -> Sequence[str]: ...

    def handshake(self, mechanism: str, *, tokens_are_bare: bool) -> ErrorCode:
        """Start an authentication attempt. `tokens_are_bare`: the tokens are whole frames instead
        of requests (SaslHandshake v0).
        """
        ...

    def authenticate(self, token: bytes) -> "TokenAnswer | Deferred[TokenAnswer]": ...

    def failure_delay_ms(self) -> int:
        """Count a bad frame as a failed authentication; return the delay before the close."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class ConnectionInfo:
    """A connection as handlers see it; hashable by identity, as the owner of parked requests."""

    peer_host: str
    """Host of the client in Kafka's format: "/127.0.0.1"."""
    session: Session = UNKNOWN
    """The client's principal and listener; replaced as a whole."""
    authentication: Authentication | None = None
    """The authentication in progress; None if the listener requires none."""
    client_software: str = "unknown unknown"
    """Name and version as sent with ApiVersions v3 and later (KIP-511), separated by a space."""
    active_as: str | None = None
    """Client id, set by the service when a request counts as activity, and reset by the periodic
    checks; see `Activity`."""
    group_member: tuple[str, str] = ("", "")
    """Group and member id of the last SyncGroup."""
    throttle_ms: int = 0
    """Throttle time of the response, set by the service. The connection resets it, and is muted for
    this time after writing the response (KIP-219)."""
    worked_s: float = 0.0
    """Seconds for which the parked request has been executed since it was parked, if its client has
    a request quota. Updated by the service, and reset when the next request is parked."""
    accounts: Accounts = NO_ACCOUNTS
    accounts_of: Session = UNKNOWN
    """`accounts` has the cached quota accounts of the last request's client, valid only for the
    session `accounts_of`. The service sets both if clients have quotas."""
    granted: Granted = field(default_factory=lambda: NOTHING_GRANTED)
    granted_to: Session = UNKNOWN
    """`granted` has the cached permissions, valid only for the session `granted_to`. The service
    sets both if there are access rules."""
    sends_files: bool = False
    """Whether responses may contain file ranges."""
    opened_share_session: bool = False
    """Whether the client has sent a ShareFetch: its share sessions end with the connection."""
    is_open: bool = True


class FileRange(Protocol):
    """A range of a file, to be sent by the kernel. Sent or read bytes are removed from it.

    Methods raise OSError, for example if the file was truncated.
    """

    def __len__(self) -> int: ...

    def send_to(self, socket_number: int) -> int:
        """Send as many bytes as a non-blocking socket accepts now. Raises BlockingIOError if it
        accepts none.
        """
        ...

    def take(self, byte_count: int) -> bytes:
        """Read up to `byte_count` bytes from the front. Call this in a thread: it may wait for the
        disk.
        """
        ...

    def is_cached(self) -> bool:
        """Whether the rest of the range is in the page cache, so that sending does not wait for the
        disk.
        """
        ...


Part = Buffer | FileRange
ResponseBuffers = list[Buffer] | None
"""A response frame as a list of buffers, size header included; None for no response.

If the connection `sends_files`, a `FileRange` may take the place of a large buffer."""


class Service(Protocol):
    def serve(
        self, connection: ConnectionInfo, frame: Buffer
    ) -> ResponseBuffers | Deferred[ResponseBuffers]:
        """Execute a request. The service may keep `frame`, but not modify it. The connection
        cancels a deferred response when the client disconnects. A deferred response may fail with
        the exceptions that this method raises.

        Raises:
            CloseConnection: the only possible response is to close the connection.
        """
        ...

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """Cancel the pending requests of this connection; it has been closed."""
        ...


class TlsPeer(Protocol):
    """The client of a completed TLS handshake."""

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER; None if it sent none."""
        ...

    @property
    def version(self) -> str: ...


class NewConnection(Protocol):
    """An unauthenticated connection, as TLS and the authenticator see it."""

    info: ConnectionInfo
    ip: str

    def on_authenticated(self, session: Session, service: Service | None = None) -> None:
        """Execute requests as `session` from now on, by `service` or by the default service."""
        ...


class ListenerTls(Protocol):
    context: ssl.SSLContext
    """The context for new connections; replaced as a whole when certificates are renewed."""

    def established(self, connection: NewConnection, peer: TlsPeer) -> None:
        """Create the session from a client's certificate. Raises TlsError to reject the client."""
        ...


@dataclass(slots=True, eq=False, repr=False)
class Listener:
    name: str
    """The listener's name in `listeners`, in upper case."""
    tls: ListenerTls | None = None
    """TLS of the listener; None for plain text."""
    new_service: Callable[[NewConnection], Service] | None = None
    """Creates the service that authenticates a new connection; None without SASL."""
    first_frame_max_bytes: int | None = None
    """Largest frame before authentication; None: the normal limit."""

    @property
    def requires_authentication(self) -> bool:
        """Whether clients must complete TLS or SASL before their requests are served."""
        return self.tls is not None or self.new_service is not None
