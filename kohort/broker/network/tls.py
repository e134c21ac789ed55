"""TLS as the broker speaks it: bytes in, plaintext into places that are given, bytes out.

Knows no socket, loop or clock. What OpenSSL is fed is at most one record at a time, because its
buffers grow with what is put into them and stay so for the life of a connection.

Promises: after `feed`, and `read_into` until that returns 0, nothing readable is left inside;
whatever the peer sends ends in plaintext, in `TlsError` or in waiting for more.
"""

import ssl
from typing import Final, cast

RECORD_BYTES: Final = 16 * 1024 + 512
"""More than any record of TLS has with its header."""

_ALERT: Final = bytes((0x15, 3, 3, 0, 2, 2, 80))
"""A fatal alert, internal_error."""

WRITE_SLICE_BYTES: Final = 64 * 1024
"""Plaintext that is encrypted at a time."""


class TlsError(Exception):
    """The peer does not speak TLS as it should; the text is OpenSSL's reason."""


class TlsPump:
    """The server's side of one connection."""

    __slots__ = ("_incoming", "_object", "_outgoing", "has_ended", "is_established")

    def __init__(self, context: ssl.SSLContext) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self.is_established = False
        """Whether the handshake is over."""
        self.has_ended = False
        """Whether the peer has said that nothing more will come."""

    def feed(self, data: memoryview) -> None:
        """Take ciphertext: at most `RECORD_BYTES`, and only when what came before was read."""
        self._incoming.write(data)

    def shake_hands(self) -> None:
        """Go on with the handshake as far as what has come allows.

        Raises:
            TlsError: it has failed; `take_output` may have an alert for the peer.
        """
        try:
            self._object.do_handshake()
        except ssl.SSLWantReadError:
            return
        except (ssl.SSLError, OSError) as error:
            if not self._outgoing.pending:
                # OpenSSL says nothing to who speaks no TLS at all; Kafka does, and clients hint.
                self._outgoing.write(_ALERT)
            raise TlsError(reason_of(error)) from None
        self.is_established = True

    def read_into(self, place: memoryview) -> int:
        """Decrypt into `place`; how many bytes, 0 for none until more ciphertext comes.

        Raises:
            TlsError: what came is not of this connection.
        """
        filled = 0
        size = len(place)
        try:
            # A read gives one record, however much there is room for. Where there is nothing it
            # is not asked: to raise and catch that costs more than to decrypt a small record.
            while filled < size and (self._incoming.pending or self._object.pending()):
                # With a place it returns a number.
                count = cast(int, self._object.read(size - filled, place[filled:]))
                if not count:
                    self.has_ended = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except (ssl.SSLError, OSError) as error:
            if not filled:
                raise TlsError(reason_of(error)) from None
        return filled

    def write(self, data: memoryview) -> None:
        """Encrypt; `take_output` has it then."""
        try:
            self._object.write(data)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(reason_of(error)) from None

    def say_goodbye(self) -> None:
        """Tell the peer that nothing more will come, and do not wait for its answer."""
        if not self.is_established:
            return
        try:
            self._object.unwrap()
        except (ssl.SSLError, OSError):
            # Mostly that the peer has not said it as well.
            return

    def take_output(self) -> bytes:
        """Everything that is to be sent to the peer, mostly nothing."""
        return self._outgoing.read() if self._outgoing.pending else b""

    @property
    def peer_certificate(self) -> bytes | None:
        """Certificate that the client has shown and proved, in DER; None without one."""
        return self._object.getpeercert(binary_form=True)

    @property
    def version(self) -> str:
        """Version of TLS that was agreed upon, and the cipher."""
        cipher = self._object.cipher()
        return f"{self._object.version()} {cipher[0] if cipher else ''}".rstrip()


def reason_of(error: Exception) -> str:
    """OpenSSL's words for what went wrong, in one line and without our sources' names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(error) or type(error).__name__
