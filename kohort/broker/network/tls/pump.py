"""Server-side TLS without I/O: ciphertext in, plaintext out, and the reverse.

Independent of sockets, event loops and clocks. OpenSSL is fed at most one record at a time, because
its buffers grow with their input and never shrink.

Guarantees: after `feed`, and `read_into` until it returns 0, no readable data is left inside;
whatever the peer sends results in plaintext, in `TlsError` or in waiting for more data.
"""

import ssl
from typing import Final, cast

from kohort.protocol.codec import Buffer

RECORD_BYTES: Final = 16 * 1024 + 512
"""Larger than any TLS record with its header."""

_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 80))
"""A fatal alert, internal_error."""

WRITE_SLICE_BYTES: Final = 64 * 1024
"""Maximum plaintext that is encrypted at a time."""


_REFUSED: Final = "the client rejects this broker's certificate"
_MEANINGS: Final = {
    "wrong version number": "a client without TLS on a port with TLS; see its security.protocol",
    "http request": "an HTTP request without TLS on a port with TLS",
    "unsupported protocol": "a client with a version of TLS that is not enabled",
    "no shared cipher": "a client without any cipher suite that is enabled",
    "peer did not return a certificate": "a client without a certificate, which is required",
    "tlsv1 alert unknown ca": f"{_REFUSED}: its trust store lacks the authority",
    "sslv3 alert certificate expired": f"{_REFUSED}: it has expired",
    "sslv3 alert certificate unknown": _REFUSED,
    "sslv3 alert bad certificate": _REFUSED,
}
"""Explanations, for operators, of the reasons in OpenSSL's errors."""


class TlsError(Exception):
    """The peer violates TLS; the text is OpenSSL's reason."""


class TlsPump:
    """The TLS state of one server-side connection."""

    __slots__ = (
        "_context",
        "_incoming",
        "_object",
        "_outgoing",
        "has_ended",
        "is_dry",
        "is_established",
    )

    _object: ssl.SSLObject
    """Created by the first `do_handshake`, in a handshake thread."""

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._context: ssl.SSLContext | None = context
        """The context until the handshake begins, then None."""
        self.is_established = False
        self.has_ended = False
        """Whether the peer has sent close_notify."""
        self.is_dry = True
        """Whether `read_into` would return 0 before the next `feed`."""

    def feed(self, data: memoryview) -> None:
        """Add ciphertext: at most `RECORD_BYTES`, after all earlier plaintext was read."""
        self._incoming.write(data)
        self.is_dry = False

    def do_handshake(self) -> None:
        """Continue the handshake with the received data.

        Raises:
            TlsError: it has failed; `take_output` may return an alert for the peer.
        """
        if self._context is not None:
            self._object = self._context.wrap_bio(self._incoming, self._outgoing, server_side=True)
            self._context = None
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, OSError) as error:
            if not self._outgoing.pending:
                # OpenSSL sends no alert to a peer without TLS; Kafka does, and clients expect it.
                self._outgoing.write(_ALERT)
            raise TlsError(reason_of(error)) from None
        self.is_established = True

    def read_into(self, buffer: memoryview) -> int:
        """Decrypt into `buffer`; return the number of bytes, 0 if more ciphertext is needed.

        Raises:
            TlsError: the ciphertext is invalid.
        """
        filled = 0
        size = len(buffer)
        rest = buffer
        try:
            # A read returns one record, however large the buffer. It is not attempted without
            # pending data: an exception costs more than decrypting a small record.
            while self._incoming.pending or self._object.pending():
                # `read` returns the byte count if it gets a buffer.
                count = cast(int, self._object.read(size - filled, rest))
                if not count:
                    self.has_ended = True
                    break
                filled += count
                if filled == size:
                    return filled
                rest = buffer[filled:]
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except (ssl.SSLError, OSError) as error:
            if not filled:
                raise TlsError(reason_of(error)) from None
            # Return the decrypted data first; the next call raises the error.
            return filled
        self.is_dry = True
        return filled

    def write(self, data: Buffer) -> None:
        """Encrypt data; get the result with `take_output`."""
        try:
            self._object.write(data)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(reason_of(error)) from None

    def close_notify(self) -> None:
        """Send close_notify without waiting for the peer's."""
        if not self.is_established:
            return
        try:
            self._object.unwrap()
        except (ssl.SSLError, OSError):
            # OpenSSL reports an error, usually because the peer has not sent its close_notify.
            return

    def take_output(self) -> bytes:
        """Return the bytes to send to the peer, usually none."""
        return self._outgoing.read() if self._outgoing.pending else b""

    @property
    def peer_certificate(self) -> bytes | None:
        """The client's verified certificate in DER; None if it sent none."""
        return self._object.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        cipher = self._object.cipher()
        return f"{self._object.version()} {cipher[0] if cipher else ''}".rstrip()


def reason_of(error: Exception) -> str:
    """Return OpenSSL's reason for an error in one line, without source file names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        meaning = _MEANINGS.get(reason)
        return reason if meaning is None else f"{meaning} ({reason})"
    return str(error) or type(error).__name__
