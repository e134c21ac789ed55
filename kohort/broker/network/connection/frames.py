"""Splits the bytes of one connection into frames. Independent of sockets.

Guarantees: a small frame is copied once, out of the receive buffer; a large one is received into a
contiguous buffer of its own. Memory is allocated in proportion to what has arrived, never to the
announced size. A returned frame is never written to again, so views of it stay valid as long as
anyone keeps them.

Between two reads nothing is left in the receive buffer, so all connections share one. That includes
a read without data: a transport may request a buffer and then find nothing to read, so requesting
it must not depend on anything that another connection's read could overwrite.
"""

import ctypes
import struct
from typing import Final

from kohort.broker.network.memory import UNCHECKED_BYTES, MemoryReservation
from kohort.broker.network.service import FramePart
from kohort.protocol.codec import Buffer

RECEIVE_BUFFER_BYTES: Final = 256 * 1024

_new_bytearray: Final = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(
    ("PyByteArray_FromStringAndSize", ctypes.pythonapi)
)
"""Creates a bytearray without filling it, given None and a size. `bytearray(size)` writes zeros and
so maps all of its memory in one step, which takes 60 ms for the largest frame."""

_FIRST_ROOM_BYTES: Final = 4096
_ROOM_PER_ARRIVED: Final = 8
"""The buffer grows to eight times what has arrived: at most three copies for a frame of any size.
If that is more than half of the frame, it is allocated completely, or nearly all would be copied
once more."""

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
    """The size field is invalid: the peer's fault, and the connection must be closed."""


class FrameReader:
    """The receiving side of one connection.

    One cycle: read into `buffer()`, call `received`, then `next_frame` as often as wanted, and then
    `keep_rest`, before anyone else uses the receive buffer. A cycle may stop after `buffer()`, as
    if it had not begun.
    """

    __slots__ = (
        "_asked_bytes",
        "_end",
        "_filled",
        "_memory",
        "_parts_begun",
        "_receive_buffer",
        "_rest",
        "_room",
        "_size",
        "_sole",
        "_start",
        "frame_max_bytes",
    )

    def __init__(
        self, receive_buffer: memoryview, memory: MemoryReservation, frame_max_bytes: int
    ) -> None:
        self._receive_buffer = receive_buffer
        self._memory = memory
        self.frame_max_bytes = frame_max_bytes
        self._sole: bytes | None = None
        """A frame that arrived alone and complete, as nearly all do; then nothing else is held
        here."""
        self._rest = b""
        """Received frames that were not taken, or the first bytes of a size field."""
        self._start = 0
        """Where the next frame begins: in `_rest` if that is not empty, else in the receive
        buffer."""
        self._end = 0
        """How far the receive buffer is filled with this connection's data."""
        self._room: bytearray | None = None
        """A frame that did not arrive in one piece; its length is what has been allocated so
        far."""
        self._size = 0
        self._filled = 0
        self._asked_bytes = 0
        self._parts_begun = 0

    @property
    def is_empty(self) -> bool:
        """Whether neither a frame nor a part of one is left after `keep_rest`."""
        return self._sole is None and self._room is None and not self._rest

    @property
    def has_frame(self) -> bool:
        """Whether a complete frame can be taken after `keep_rest`."""
        if self._sole is not None:
            return True
        if self._room is not None:
            return self._filled == self._size
        return len(self._rest) - self._start >= _SIZE_BYTES

    @property
    def part(self) -> FramePart | None:
        """The incomplete frame after `keep_rest`; None if no frame is incomplete."""
        if self.has_frame or not (self._rest or self._room is not None):
            return None
        return FramePart(self._parts_begun, self._filled)

    @property
    def is_starved(self) -> bool:
        """Whether receiving has to wait until the memory budget grants more room."""
        return self._asked_bytes > 0

    def buffer(self) -> memoryview:
        """The buffer for the next bytes; never empty.

        A read may bring nothing, and the next call may be another connection's. Kept bytes of a
        size field stay where they are until `received`; here only their space is reserved.
        """
        room = self._room
        if room is not None and self._filled < self._size:
            if self._filled == len(room):
                # The transport was told to pause but reads nevertheless.
                self._memory.add(1)
                room.append(0)
            return memoryview(room)[self._filled :]
        if self._rest and not self.has_frame:
            return self._receive_buffer[len(self._rest) :]
        return self._receive_buffer

    def received(self, byte_count: int) -> bool:
        """Process `byte_count` bytes in the buffer returned by `buffer`.

        False if an incomplete frame has only grown: then there is nothing to take or to keep, and
        receiving can continue.
        """
        room = self._room
        if room is not None and self._filled < self._size:
            self._filled += byte_count
            self._memory.arrived_bytes += byte_count
            self._memory.left_bytes = self._size - self._filled
            if self._filled == len(room) < self._size and not self._asked_bytes:
                self._extend_room(self._ask_for_room(len(room)))
            return self._filled == self._size or self._asked_bytes > 0
        if self.has_frame:
            # As above: the transport was told to pause but reads nevertheless.
            self._unfold()
            self._set_rest(self._rest + self._receive_buffer[:byte_count])
        else:
            kept_bytes = len(self._rest)
            if kept_bytes:
                self._receive_buffer[:kept_bytes] = self._rest
                self._set_rest(b"")
            self._end = kept_bytes + byte_count
        return True

    def received_small(self, byte_count: int) -> bool:
        """Do what `received` does; if the input begins with a complete frame, also move everything
        out of the receive buffer, as `keep_rest` would. False if it does not, or other data is held
        here.
        """
        if self._rest or self._sole is not None or self._room is not None or self._end:
            self.received(byte_count)
            return False
        buffer = self._receive_buffer
        # If less than a size field was read, the buffer contains old data after it.
        size: int = _SIZE.unpack_from(buffer)[0] if byte_count > _SIZE_BYTES else 0
        if 0 < size == byte_count - _SIZE_BYTES and size <= self.frame_max_bytes:
            self._sole = bytes(buffer[_SIZE_BYTES:byte_count])
            self._memory.add(byte_count)
            return True
        self._end = byte_count
        if not 0 < size < byte_count - _SIZE_BYTES:
            return False
        self._parts_begun += 1
        self._set_rest(bytes(buffer[:byte_count]))
        self._end = 0
        return True

    def take_sole(self) -> bytes | None:
        """Take a frame that arrived alone and complete, as `next_frame` would; None if there is
        none.
        """
        frame = self._sole
        if frame is not None:
            self._sole = None
            self._memory.release(_SIZE_BYTES + len(frame))
        return frame

    def next_frame(self) -> Buffer | None:
        """Return the next complete frame without its size, or None.

        A bytes object arrived in one piece. A bytearray counts in the memory budget until its taker
        gives back its length; it must not be modified.

        Raises:
            FrameError: the size is not positive, or too large.
        """
        if self._sole is not None:
            return self.take_sole()
        if self._room is not None:
            if self._filled < self._size:
                return None
            room, self._room, self._filled = self._room, None, 0
            return room
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
        """Move data that was not taken out of the receive buffer.

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
        """Allocate the room that the memory budget has granted."""
        asked_bytes, self._asked_bytes = self._asked_bytes, 0
        # A transport that reads nevertheless has used some or all of the room already.
        missing_bytes = 0 if self._room is None else self._size - len(self._room)
        more_bytes = min(asked_bytes, missing_bytes)
        if more_bytes:
            self._extend_room(more_bytes)
        if more_bytes < asked_bytes:
            self._memory.release(asked_bytes - more_bytes)

    def close(self) -> None:
        """Release all data. The claimant's own `close` informs the memory budget."""
        self._sole, self._rest, self._room = None, b"", None
        self._start = self._end = self._filled = self._asked_bytes = 0

    def _keep_rest_of_rest(self) -> None:
        """Drop frames that were taken from the data kept earlier."""
        if self._start == len(self._rest):
            self._set_rest(b"")
            self._start = 0
            return
        rest = memoryview(self._rest)[self._start :]
        if self._room is not None or self._holds_frame(rest):
            return
        self._set_rest(b"")
        self._start = 0
        if rest:
            self._keep(rest)

    def _keep(self, rest: memoryview) -> None:
        self._parts_begun += 1
        if self._room is not None or len(rest) < _SIZE_BYTES or self._holds_frame(rest):
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
        """Move the size and the first bytes of a frame into a buffer of its own."""
        (self._size,) = _SIZE.unpack_from(data)
        self._filled = len(data) - _SIZE_BYTES
        self._memory.add(self._filled)
        self._memory.arrived_bytes += self._filled
        self._memory.left_bytes = self._size - self._filled
        room = bytearray(self._filled + self._ask_for_room(self._filled))
        room[: self._filled] = data[_SIZE_BYTES:]
        self._room = room

    def _ask_for_room(self, room_bytes: int) -> int:
        """Return by how many bytes to extend a buffer now;
        0 if the memory budget has to grant it.
        """
        wanted = min(self._size, max(_FIRST_ROOM_BYTES, _ROOM_PER_ARRIVED * self._filled))
        if room_bytes < UNCHECKED_BYTES < wanted < self._size:
            # Room that needs no grant comes first, so that fewer grants are requested afterwards.
            wanted = UNCHECKED_BYTES
        elif 2 * wanted > self._size:
            wanted = self._size
        more_bytes = wanted - room_bytes
        if wanted <= UNCHECKED_BYTES:
            self._memory.add(more_bytes)
        elif not self._memory.reserve(more_bytes):
            self._asked_bytes = more_bytes
            return 0
        return more_bytes

    def _extend_room(self, more_bytes: int) -> None:
        """Allocate a new buffer, because the transport may still hold the old one."""
        assert self._room is not None
        if not more_bytes:
            return
        room = _new_bytearray(None, len(self._room) + more_bytes)
        room[: self._filled] = memoryview(self._room)[: self._filled]
        self._room = room

    def _unfold(self) -> None:
        """Put the sole frame into `_rest`, because more data arrives."""
        if self._sole is not None:
            # With the size header, these are as many bytes as were counted already.
            self._rest, self._sole = _SIZE.pack(len(self._sole)) + self._sole, None

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
