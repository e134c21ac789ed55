"""Splits received bytes into frames without copying large ones.

Small responses are parsed from one shared buffer; a larger response is received from the socket
directly into a buffer of its own.
"""

from __future__ import annotations

from typing import Final

_SCRATCH_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 4

FRAME_BYTES_MAX: Final = 1 << 30
"""Upper bound of any valid response; a larger size was not sent by a broker."""

GREETING_BYTES_MAX: Final = 1 << 20
"""Frame size limit until the handshake has shown that the peer is a broker. The responses in a
handshake have some hundred bytes."""

_TLS_ALERT: Final = b"\x15\x03"
"""The beginning of a TLS alert: content type and major version."""


def checked_size(head: bytes, bytes_max: int) -> int:
    """Return the size of a frame from its four-byte header.

    Raises:
        ValueError: the size is too large; the message says so if the peer sends TLS or HTTP.
    """
    size = int.from_bytes(head, "big")
    if size <= bytes_max:
        return size
    if head.startswith(_TLS_ALERT):
        raise ValueError("this listener requires TLS; set security_protocol to SSL or SASL_SSL")
    if head == b"HTTP":
        raise ValueError("this is a web server, not a broker")
    raise ValueError(f"a frame of {size} bytes")


class FrameReader:
    """Splits a connection's data into frames, for an asyncio.BufferedProtocol."""

    def __init__(self) -> None:
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._begin = 0
        """Where the unconsumed bytes in the scratch buffer begin."""
        self._end = 0
        self._large: bytearray | None = None
        self._filled = 0
        self.bytes_max = GREETING_BYTES_MAX
        """Frame size limit; the caller raises it to FRAME_BYTES_MAX after the handshake."""

    def buffer(self) -> memoryview:
        """The buffer for the next bytes to receive; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return memoryview(self._scratch)[self._end :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """Process `count` received bytes; return the frames that are complete, without their size
        headers.

        Raises:
            ValueError: the data is not a sequence of frames.
        """
        if self._large is not None:
            self._filled += count
            if self._filled < len(self._large):
                return []
            frame, self._large = self._large, None
            return [frame]
        self._end += count
        frames: list[bytes | bytearray] = []
        while self._end - self._begin >= _SIZE_BYTES:
            start = self._begin + _SIZE_BYTES
            size = checked_size(bytes(self._scratch[self._begin : start]), self.bytes_max)
            if start + size > self._end:
                if _SIZE_BYTES + size > _SCRATCH_BYTES:
                    self._begin_large(start, size)
                break
            frames.append(bytes(self._scratch[start : start + size]))
            self._begin = start + size
        self._make_room()
        return frames

    def _begin_large(self, start: int, size: int) -> None:
        self._large = bytearray(size)
        self._filled = self._end - start
        self._large[: self._filled] = self._scratch[start : self._end]
        self._begin = self._end = 0

    def _make_room(self) -> None:
        """Move the unconsumed bytes to the start, to make room for the rest of their frame."""
        left = self._end - self._begin
        if self._begin:
            self._scratch[:left] = self._scratch[self._begin : self._end]
        self._begin, self._end = 0, left
