"""Cuts the bytes of one connection into frames. Knows no socket.

Promises: a small frame is copied once, out of the receive buffer; a large one is a contiguous
buffer of its own that the socket is read into directly. Room is made in proportion to what has
arrived, never to what was announced. A frame handed out is never written to again, so views of it
stay good for as long as anybody keeps them.

Between two reads nothing is left in the receive buffer, so all connections share one. That includes
a read that brings nothing: a transport may ask for a buffer and find that there is nothing to read,
so asking must change nothing that another connection's read could spoil.
"""

import struct
from typing import Final, NamedTuple

from kohort.broker.network.memory import UNASKED_ROOM_BYTES, Claimant
from kohort.protocol.codec import Buffer

RECEIVE_BUFFER_BYTES: Final = 256 * 1024

_FIRST_ROOM_BYTES: Final = 4096
_ROOM_PER_ARRIVED: Final = 8
"""Room is made for eight times what is there: three copies for a frame of any size."""

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
    """The size field cannot be one: the peer's fault, and the end of the connection."""


class FramePart(NamedTuple):
    """An unfinished frame."""

    number: int
    """Differs from that of any other frame of the connection."""
    filled_bytes: int
    size_bytes: int = 0
    """0 while that is not known."""


class FrameReader:
    """The receiving side of one connection.

    One cycle: read into `buffer()`, tell `received`, call `next_frame` as often as wanted, and then
    `keep_rest`, before anybody else uses the receive buffer. A cycle may end after `buffer()`: then
    it never began.
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

    def __init__(self, receive_buffer: memoryview, memory: Claimant, frame_max_bytes: int) -> None:
        self._receive_buffer = receive_buffer
        self._memory = memory
        self.frame_max_bytes = frame_max_bytes
        self._sole: bytes | None = None
        """A frame that came alone and whole, as nearly all do; then nothing else is here."""
        self._rest = b""
        """Frames that were read and not taken, or the first bytes of a size field."""
        self._start = 0
        """Where the next frame begins: in `_rest` if there is one, else in the receive buffer."""
        self._end = 0
        """How far the receive buffer is filled with what is ours."""
        self._room: bytearray | None = None
        """A frame that did not arrive in one piece; its length is the room made so far."""
        self._size = 0
        self._filled = 0
        self._asked_bytes = 0
        self._parts_begun = 0

    @property
    def is_empty(self) -> bool:
        """After `keep_rest`: is there neither a frame nor a part of one?"""
        return self._sole is None and self._room is None and not self._rest

    @property
    def has_frame(self) -> bool:
        """After `keep_rest`: is there a whole frame to take?"""
        if self._sole is not None:
            return True
        if self._room is not None:
            return self._filled == self._size
        return len(self._rest) - self._start >= _SIZE_BYTES

    @property
    def part(self) -> FramePart | None:
        """After `keep_rest`: the frame that has begun and is not complete, if there is one."""
        if self.has_frame or not (self._rest or self._room is not None):
            return None
        size = 0 if self._room is None else self._size
        return FramePart(self._parts_begun, self._filled, size)

    @property
    def is_starved(self) -> bool:
        """Is there no room for more, until the budget grants it?"""
        return self._asked_bytes > 0

    def buffer(self) -> memoryview:
        """Where the next bytes go; never empty.

        Nothing may come, and the next call may be another connection's. What is kept of a size
        field stays where it is until `received`; here only the place for it is left free.
        """
        room = self._room
        if room is not None and self._filled < self._size:
            if self._filled == len(room):
                # A transport that was told to pause and reads all the same.
                self._memory.take(1)
                room.append(0)
            return memoryview(room)[self._filled :]
        if self._rest and not self.has_frame:
            return self._receive_buffer[len(self._rest) :]
        return self._receive_buffer

    def received(self, byte_count: int) -> None:
        """The first `byte_count` bytes of what `buffer` returned are there."""
        room = self._room
        if room is not None and self._filled < self._size:
            self._filled += byte_count
            self._memory.arrived_bytes += byte_count
            self._memory.left_bytes = self._size - self._filled
            if self._filled == len(room) < self._size and not self._asked_bytes:
                self._ask_for_room()
        elif self.has_frame:
            # As above: it was told to pause, and reads all the same.
            self._unfold()
            self._set_rest(self._rest + self._receive_buffer[:byte_count])
        else:
            kept_bytes = len(self._rest)
            if kept_bytes:
                self._receive_buffer[:kept_bytes] = self._rest
                self._set_rest(b"")
            self._end = kept_bytes + byte_count

    def received_small(self, byte_count: int) -> bool:
        """Does what `received` does; and if the input begins with a whole frame, all of it is moved
        out of the receive buffer, which is `keep_rest` before anything was taken. False where there
        is none, or something else is here already.
        """
        if self._rest or self._sole is not None or self._room is not None or self._end:
            self.received(byte_count)
            return False
        buffer = self._receive_buffer
        # Where less than a size was read, the buffer has something old behind it.
        size: int = _SIZE.unpack_from(buffer)[0] if byte_count > _SIZE_BYTES else 0
        if 0 < size == byte_count - _SIZE_BYTES and size <= self.frame_max_bytes:
            self._sole = bytes(buffer[_SIZE_BYTES:byte_count])
            self._memory.take(byte_count)
            return True
        self._end = byte_count
        if not 0 < size < byte_count - _SIZE_BYTES:
            return False
        self._parts_begun += 1
        self._set_rest(bytes(buffer[:byte_count]))
        self._end = 0
        return True

    def take_sole(self) -> bytes | None:
        """`next_frame` where a frame came alone and whole; None if that is not so."""
        frame = self._sole
        if frame is not None:
            self._sole = None
            self._memory.give_back(_SIZE_BYTES + len(frame))
        return frame

    def next_frame(self) -> Buffer | None:
        """The next whole frame without its size, or None.

        A bytes object arrived in one piece. A bytearray counts in the budget until its taker
        gives back its length; it must not be changed.

        Raises:
            FrameError: the size is not above 0, or too large.
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
        """Move what was not taken out of the receive buffer.

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
        """The budget has granted what was asked for."""
        asked_bytes, self._asked_bytes = self._asked_bytes, 0
        # A transport that reads all the same has got some of the room already, or all of it.
        missing_bytes = 0 if self._room is None else self._size - len(self._room)
        more_bytes = min(asked_bytes, missing_bytes)
        if more_bytes:
            self._extend_room(more_bytes)
        if more_bytes < asked_bytes:
            self._memory.give_back(asked_bytes - more_bytes)

    def close(self) -> None:
        """Let go of everything. The budget is told by its own `close`."""
        self._sole, self._rest, self._room = None, b"", None
        self._start = self._end = self._filled = self._asked_bytes = 0

    def _keep_rest_of_rest(self) -> None:
        """Frames may have been taken from what was kept before."""
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
        """Move the size and the first bytes of a frame into room of its own."""
        (self._size,) = _SIZE.unpack_from(data)
        self._filled = len(data) - _SIZE_BYTES
        self._memory.take(self._filled)
        self._memory.arrived_bytes += self._filled
        self._memory.left_bytes = self._size - self._filled
        self._room = bytearray(data[_SIZE_BYTES:])
        self._ask_for_room()

    def _ask_for_room(self) -> None:
        assert self._room is not None
        wanted = min(self._size, max(_FIRST_ROOM_BYTES, _ROOM_PER_ARRIVED * self._filled))
        if len(self._room) < UNASKED_ROOM_BYTES < wanted < self._size:
            # What is not asked for first: who then asks for eight times that asks the fewer times.
            wanted = UNASKED_ROOM_BYTES
        more_bytes = wanted - len(self._room)
        if wanted <= UNASKED_ROOM_BYTES:
            self._memory.take(more_bytes)
        elif not self._memory.ask(more_bytes):
            self._asked_bytes = more_bytes
            return
        self._extend_room(more_bytes)

    def _extend_room(self, more_bytes: int) -> None:
        """A new buffer, because the transport may still hold the old one."""
        assert self._room is not None
        room = bytearray(len(self._room) + more_bytes)
        room[: self._filled] = memoryview(self._room)[: self._filled]
        self._room = room

    def _unfold(self) -> None:
        """What came alone is to have company."""
        if self._sole is not None:
            # As many bytes as they count for already.
            self._rest, self._sole = _SIZE.pack(len(self._sole)) + self._sole, None

    def _set_rest(self, rest: bytes) -> None:
        change = len(rest) - len(self._rest)
        if change >= 0:
            self._memory.take(change)
        else:
            self._memory.give_back(-change)
        self._rest = rest

    def _describe(self, size: int, source: Buffer) -> str:
        begin = bytes(source[self._start : self._start + _SIZE_BYTES])
        for prefix, name in _OTHER_PROTOCOLS:
            if begin.startswith(prefix):
                return f"this looks like {name}"
        if size <= 0:
            return f"a frame of size {size}"
        return f"a frame of {size} bytes, above socket.request.max.bytes={self.frame_max_bytes}"
