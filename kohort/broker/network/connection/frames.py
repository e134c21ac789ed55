"""Splits the bytes of one connection into frames. Independent of sockets.

Guarantees: a small frame is copied once, out of the receive buffer; a large frame is received into
a contiguous buffer of its own. Memory is allocated in proportion to the received bytes, never to
the announced size. A returned frame is never written to again, so views of it stay valid.

All connections share one receive buffer, which is empty between two reads. A transport may request
a buffer and then read nothing, so bytes of this connection must not stay in the buffer that
`buffer` returns: another connection's read would overwrite them.
"""

import struct
from functools import cache
from typing import Any, Final

from kohort.broker.network.memory import UNCHECKED_BYTES, MemoryReservation
from kohort.broker.network.service import FramePart
from kohort.protocol.codec import Buffer

RECEIVE_BUFFER_BYTES: Final = 256 * 1024

_FIRST_BUFFER_BYTES: Final = 4096
_GROWTH: Final = 8
"""The buffer of a large frame grows to eight times the received bytes: at most three copies for a
frame of any size. If that would be more than half of the frame, the whole frame is allocated,
because the next growth would copy most of it once more."""

_SIZE: Final = struct.Struct(">i")
_SIZE_BYTES: Final = 4

_OTHER_PROTOCOLS: Final = (
    (b"\x16\x03", "a TLS handshake on a plaintext port"),
    (b"GET ", "an HTTP request"),
    (b"POST", "an HTTP request"),
    (b"HEAD", "an HTTP request"),
    (b"PUT ", "an HTTP request"),
    (b"OPTI", "an HTTP request"),
    (b"PRI ", "an HTTP/2 request"),
    (b"SSH-", "an SSH client"),
)


class FrameError(Exception):
    """Invalid size field; the connection must be closed."""


class FrameReader:
    """The receiving side of one connection.

    One cycle: read into `buffer()`; call `received`; call `next_frame` any number of times; call
    `keep_rest` before another connection uses the receive buffer. A cycle may stop after
    `buffer()`, without effect.
    """

    __slots__ = (
        "_end",
        "_filled",
        "_large",
        "_memory",
        "_part_number",
        "_receive_buffer",
        "_requested_bytes",
        "_rest",
        "_single",
        "_size",
        "_start",
        "frame_max_bytes",
    )

    def __init__(
        self, receive_buffer: memoryview, memory: MemoryReservation, frame_max_bytes: int
    ) -> None:
        self._receive_buffer = receive_buffer
        self._memory = memory
        self.frame_max_bytes = frame_max_bytes
        self._single: bytes | None = None
        """A frame that arrived alone and complete, as nearly all do. If set, there is no other
        data."""
        self._rest = b""
        """Untaken bytes: frames and later bytes, bytes after `_large`, or part of a size field."""
        self._start = 0
        """Start of the next frame, in `_rest` if that is not empty, else in the receive buffer."""
        self._end = 0
        """End of this connection's data in the receive buffer."""
        self._large: bytearray | None = None
        """Buffer of a frame that did not arrive in one read; it grows up to the frame's size."""
        self._size = 0
        self._filled = 0
        self._requested_bytes = 0
        """Bytes of the memory reservation that the buffer is waiting for."""
        self._part_number = 0
        """Number of incomplete frames so far, which identifies the current one."""

    @property
    def is_empty(self) -> bool:
        """Whether `keep_rest` has left neither a frame nor a part of a frame."""
        return self._single is None and self._large is None and not self._rest

    @property
    def has_frame(self) -> bool:
        """Whether `keep_rest` has left a complete frame."""
        if self._single is not None:
            return True
        if self._large is not None:
            return self._filled == self._size
        return len(self._rest) - self._start >= _SIZE_BYTES

    @property
    def part(self) -> FramePart | None:
        """The incomplete frame that `keep_rest` has left, if any."""
        if self.has_frame or not (self._rest or self._large is not None):
            return None
        return FramePart(self._part_number, self._filled)

    @property
    def is_waiting_for_memory(self) -> bool:
        """Whether receiving has to wait until the budget grants a reservation."""
        return self._requested_bytes > 0

    def buffer(self) -> memoryview:
        """Return the buffer for the next bytes; never empty.

        If a size field is incomplete, this method only leaves space for its first bytes, which
        `received` copies to the buffer: if the transport reads nothing after this call, another
        connection may use the buffer.
        """
        large = self._large
        if large is not None and self._filled < self._size:
            if self._filled == len(large):
                # Transports may read once more after reading is paused: make room for a byte.
                self._memory.add(1)
                large.append(0)
            return memoryview(large)[self._filled :]
        if self._rest and not self.has_frame:
            return self._receive_buffer[len(self._rest) :]
        return self._receive_buffer

    def received(self, byte_count: int) -> bool:
        """Process `byte_count` bytes in the buffer returned by `buffer`.

        Return False if an incomplete frame has only grown: then there is no frame to take, and
        `keep_rest` is not needed.
        """
        large = self._large
        if large is not None and self._filled < self._size:
            self._filled += byte_count
            self._memory.arrived_bytes += byte_count
            self._memory.left_bytes = self._size - self._filled
            if self._filled == len(large) < self._size and not self._requested_bytes:
                self._enlarge(self._reserve_growth(len(large)))
            return self._filled == self._size or self._requested_bytes > 0
        if self.has_frame:
            # The transport has read although reading is paused.
            self._move_single()
            self._set_rest(self._rest + self._receive_buffer[:byte_count])
        else:
            kept_bytes = len(self._rest)
            if kept_bytes:
                self._receive_buffer[:kept_bytes] = self._rest
                self._set_rest(b"")
            self._end = kept_bytes + byte_count
        return True

    def received_small(self, byte_count: int) -> bool:
        """Do what `received` does. If the data begins with a complete frame, and no earlier data is
        kept, also move the data out of the receive buffer, as `keep_rest` does, and return True.
        """
        if self._rest or self._single is not None or self._large is not None or self._end:
            self.received(byte_count)
            return False
        buffer = self._receive_buffer
        # With fewer bytes than a size field, the size would include old data from the buffer.
        size: int = _SIZE.unpack_from(buffer)[0] if byte_count > _SIZE_BYTES else 0
        if 0 < size == byte_count - _SIZE_BYTES and size <= self.frame_max_bytes:
            self._single = bytes(buffer[_SIZE_BYTES:byte_count])
            self._memory.add(byte_count)
            return True
        self._end = byte_count
        if not 0 < size < byte_count - _SIZE_BYTES:
            return False
        self._part_number += 1
        self._set_rest(bytes(buffer[:byte_count]))
        self._end = 0
        return True

    def take_single(self) -> bytes | None:
        """Like `next_frame` if the frame arrived alone and complete; otherwise return None."""
        frame = self._single
        if frame is not None:
            self._single = None
            self._memory.release(_SIZE_BYTES + len(frame))
        return frame

    def next_frame(self) -> Buffer | None:
        """Return the next complete frame without its size, or None.

        A bytearray counts against the memory budget until the caller releases its length; it must
        not be modified. A `bytes` object does not count.

        Raises:
            FrameError: the size is not positive, or too large.
        """
        if self._single is not None:
            return self.take_single()
        if self._large is not None:
            if self._filled < self._size:
                return None
            frame, self._large, self._filled = self._large, None, 0
            return frame
        source: Buffer = self._rest or self._receive_buffer
        end = len(self._rest) or self._end
        body = self._start + _SIZE_BYTES
        if body > end:
            return None
        (size,) = _SIZE.unpack_from(source, self._start)
        if not 0 < size <= self.frame_max_bytes:
            raise FrameError(self._describe(size, source))
        stop = body + size
        if stop > end:
            return None
        self._start = stop
        return bytes(source[body:stop])

    def keep_rest(self) -> None:
        """Copy the remaining data out of the receive buffer.

        Raises:
            FrameError: as `next_frame`.
        """
        if self._rest:
            self._keep_rest_of_rest()
        elif self._end:
            rest = self._receive_buffer[self._start : self._end]
            self._start = self._end = 0
            if rest:
                self._keep(rest)

    def grow(self) -> None:
        """Enlarge the frame's buffer by the granted reservation."""
        granted_bytes, self._requested_bytes = self._requested_bytes, 0
        # The buffer is larger already if the transport has read although reading is paused.
        missing_bytes = 0 if self._large is None else self._size - len(self._large)
        more_bytes = min(granted_bytes, missing_bytes)
        if more_bytes:
            self._enlarge(more_bytes)
        if more_bytes < granted_bytes:
            self._memory.release(granted_bytes - more_bytes)

    def close(self) -> None:
        """Drop all data. Its memory is released by `MemoryReservation.close`."""
        self._single, self._rest, self._large = None, b"", None
        self._start = self._end = self._filled = self._requested_bytes = 0

    def _keep_rest_of_rest(self) -> None:
        """Remove the frames that were taken from `_rest`."""
        if self._start == len(self._rest):
            self._set_rest(b"")
            self._start = 0
            return
        rest = memoryview(self._rest)[self._start :]
        if self._large is not None or self._holds_frame(rest):
            return
        self._set_rest(b"")
        self._start = 0
        if rest:
            self._keep(rest)

    def _keep(self, rest: memoryview) -> None:
        self._part_number += 1
        if self._large is not None or len(rest) < _SIZE_BYTES or self._holds_frame(rest):
            self._set_rest(bytes(rest))
        else:
            self._begin_frame(rest)

    def _holds_frame(self, data: memoryview) -> bool:
        if len(data) < _SIZE_BYTES:
            return False
        (size,) = _SIZE.unpack_from(data)
        if not 0 < size <= self.frame_max_bytes:
            raise FrameError(self._describe(size, data))
        return len(data) >= _SIZE_BYTES + int(size)

    def _begin_frame(self, data: memoryview) -> None:
        """Move the first bytes of a frame into a buffer of its own."""
        (self._size,) = _SIZE.unpack_from(data)
        self._filled = len(data) - _SIZE_BYTES
        self._memory.add(self._filled)
        self._memory.arrived_bytes += self._filled
        self._memory.left_bytes = self._size - self._filled
        large = bytearray(self._filled + self._reserve_growth(self._filled))
        large[: self._filled] = data[_SIZE_BYTES:]
        self._large = large

    def _reserve_growth(self, buffer_bytes: int) -> int:
        """Return by how many bytes to enlarge the buffer now, 0 if the reservation has to wait."""
        wanted = min(self._size, max(_FIRST_BUFFER_BYTES, _GROWTH * self._filled))
        if buffer_bytes < UNCHECKED_BYTES < wanted < self._size:
            # Grow in two steps: up to this size, no reservation is needed.
            wanted = UNCHECKED_BYTES
        elif 2 * wanted > self._size:
            wanted = self._size
        more_bytes = wanted - buffer_bytes
        if wanted <= UNCHECKED_BYTES:
            self._memory.add(more_bytes)
        elif not self._memory.reserve(more_bytes):
            self._requested_bytes = more_bytes
            return 0
        return more_bytes

    def _enlarge(self, more_bytes: int) -> None:
        """Replace the buffer by a larger one: the transport may still refer to the old one."""
        assert self._large is not None
        if not more_bytes:
            return
        large = _bytearray_maker()(None, len(self._large) + more_bytes)
        large[: self._filled] = memoryview(self._large)[: self._filled]
        self._large = large

    def _move_single(self) -> None:
        """Move `_single` to `_rest`, because more data has arrived."""
        if self._single is not None:
            # Frames in `_rest` have size fields; the budget has already counted both.
            self._rest, self._single = _SIZE.pack(len(self._single)) + self._single, None

    def _set_rest(self, rest: bytes) -> None:
        change = len(rest) - len(self._rest)
        if change >= 0:
            self._memory.add(change)
        else:
            self._memory.release(-change)
        self._rest = rest

    def _describe(self, size: int, source: Buffer) -> str:
        begin = bytes(source[self._start : self._start + _SIZE_BYTES])
        for prefix, name in _OTHER_PROTOCOLS:
            if begin.startswith(prefix):
                return f"this looks like {name}"
        if size <= 0:
            return f"a frame of size {size}"
        return (
            f"a frame of {size} bytes, above {self.frame_max_bytes} (socket.request.max.bytes; "
            "sasl.server.max.receive.size before authentication)"
        )


@cache
def _bytearray_maker() -> Any:  # noqa: ANN401 - a function of C.
    """Return a function that creates an uninitialised bytearray, given None and a size.

    `bytearray(size)` writes zeros, and so maps all of its memory at once, which takes 60 ms for the
    largest frame.
    """
    import ctypes  # noqa: PLC0415 - most brokers start long before their first large frame.

    prototype = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)
    return prototype(("PyByteArray_FromStringAndSize", ctypes.pythonapi))
