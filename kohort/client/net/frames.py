"""Cuts what a broker sends into frames, copying nothing that is large.

Small answers are parsed out of one buffer that all of them share; an answer that does not fit there
is received into a buffer of its own size, straight from the socket.
"""

from __future__ import annotations

from typing import Final

_SCRATCH_BYTES: Final = 64 * 1024
_SIZE_BYTES: Final = 4

FRAME_BYTES_MAX: Final = 1 << 30
"""No answer that was asked for is larger; a size above it is not a broker's."""

GREETING_BYTES_MAX: Final = 1 << 20
"""The same for the first answers, before it is known that a broker talks; they have some hundred
bytes."""

_TLS_ALERT: Final = b"\x15\x03"
"""How TLS begins to say that it has not understood: content type and the major version."""


def checked_size(head: bytes, bytes_max: int) -> int:
    """The size of a frame, from the four bytes before it.

    Raises:
        ValueError: no frame begins so; the text says what does, as far as one can tell.
    """
    size = int.from_bytes(head, "big")
    if size <= bytes_max:
        return size
    if head.startswith(_TLS_ALERT):
        raise ValueError("this listener wants TLS; security_protocol must be SSL or SASL_SSL")
    if head == b"HTTP":
        raise ValueError("this is a web server, not a broker")
    raise ValueError(f"a frame of {size} bytes")


class FrameReader:
    """For one connection. Use like asyncio.BufferedProtocol: `buffer`, then `received`."""

    def __init__(self) -> None:
        self._scratch = bytearray(_SCRATCH_BYTES)
        self._begin = 0
        """Where the bytes begin that are in the scratch buffer and not taken yet."""
        self._end = 0
        self._large: bytearray | None = None
        self._filled = 0
        self.bytes_max = GREETING_BYTES_MAX
        """Limit for a frame; to be raised to FRAME_BYTES_MAX once the two sides know each other."""

    def buffer(self) -> memoryview:
        """Where the next bytes are to be put; never empty."""
        if self._large is not None:
            return memoryview(self._large)[self._filled :]
        return memoryview(self._scratch)[self._end :]

    def received(self, count: int) -> list[bytes | bytearray]:
        """`count` bytes were put there; the frames that are complete by now, without their size.

        Raises:
            ValueError: what comes is not frames.
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
        """Have what is left begin at the start, so that the frame it begins will fit."""
        left = self._end - self._begin
        if self._begin:
            self._scratch[:left] = self._scratch[self._begin : self._end]
        self._begin, self._end = 0, left
