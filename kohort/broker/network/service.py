"""The seam between connections, which move frames, and what answers the requests in them."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kohort.broker.core.security.session import UNKNOWN, Session
from kohort.broker.network.timeouts import CloseReason
from kohort.broker.runtime.later import Later
from kohort.protocol.codec import Buffer
from kohort.protocol.errors import ErrorCode


class CloseConnection(Exception):  # noqa: N818 - an instruction, not an error of ours
    """Raised by a service whose only way to tell the client is to close the connection, such as a
    failed Produce with acks=0. The text goes to the log.
    """

    def __init__(
        self,
        text: str,
        *,
        answer: "Answer" = None,
        reason: CloseReason = CloseReason.BAD_REQUEST,
        is_told: bool = True,
    ) -> None:
        """`answer` is sent before. `is_told` is False where the log has been told already."""
        super().__init__(text)
        self.answer = answer
        self.reason = reason
        self.is_told = is_told


class Verdict(NamedTuple):
    """What a client's token is answered."""

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None
    token: bytes = b""
    lifetime_ms: int = 0
    """When the client has to authenticate again; 0 for never."""


class Authentication(Protocol):
    """How the client of one connection proves who it is."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The mechanisms of the listener."""
        ...

    def choose(self, mechanism: str, *, tokens_are_bare: bool) -> ErrorCode:
        """Begin an attempt; `tokens_are_bare` where they follow without requests around them."""
        ...

    def take(self, token: bytes) -> "Verdict | Later[Verdict]":
        """Go on with it."""
        ...


@dataclass(slots=True, eq=False)
class ConnectionInfo:
    """One client connection as handlers see it; hashable by identity (owner of parked requests)."""

    peer_host: str
    """Host of the client as Kafka shows it: "/127.0.0.1"."""
    session: Session = UNKNOWN
    """The client's principal, and the listener it came by; replaced as a whole."""
    authentication: Authentication | None = None
    """How the client proves who it is; None where the listener does not ask."""
    client_software_name: str = "unknown"
    client_software_version: str = "unknown"
    """Name and version as told by ApiVersions v3 and later (KIP-511)."""
    fetches_as: str | None = None
    """Client id of a Fetch that came since the server's last round through the connections; see
    `last_fetches`."""
    throttle_ms: int = 0
    """Set by the service with an answer: for so long, once that is written, the connection neither
    reads nor executes anything (KIP-219). It sets this back."""
    sends_files: bool = False
    """Its answers may contain ranges of files, which go to the socket without being read."""


class FileRange(Protocol):
    """Bytes that lie in a file and need not be read to be sent. What is sent or taken is gone.

    Methods raise OSError; so does a file that has become too short.
    """

    def __len__(self) -> int:
        """Bytes that are left."""
        ...

    def send_to(self, socket_number: int) -> int:
        """Send what a non-blocking socket takes now; BlockingIOError if that is nothing."""
        ...

    def take(self, byte_count: int) -> bytes:
        """Read up to so many from the front; for another thread: it may wait for a disk."""
        ...

    def take_cached(self, byte_count: int) -> bytes:
        """The same, but only what is in memory: perhaps nothing."""
        ...

    def is_cached(self) -> bool:
        """Whether what is left is in memory, so that sending it waits for no disk."""
        ...


Part = Buffer | FileRange
Answer = list[Buffer] | None
"""A response frame as buffers to be written in order, size included; None for no response.

For a connection that says `sends_files` there may be a `FileRange` in the place of a large buffer.
"""


class Service(Protocol):
    """What a connection hands its frames to."""

    def serve(self, connection: ConnectionInfo, frame: Buffer) -> Answer | Later[Answer]:
        """Answer one request. `frame` is the service's to keep, never to change. An answer that
        comes later is cancelled by the connection when the client is gone, and fails as this does.

        Raises:
            CloseConnection: the client can only be told by closing the connection.
        """
        ...

    def connection_lost(self, connection: ConnectionInfo) -> None:
        """The client is gone: give up what waits for it."""
        ...
