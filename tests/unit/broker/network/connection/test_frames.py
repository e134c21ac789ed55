import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.broker.network.connection.frames import RECEIVE_BUFFER_BYTES, FrameError, FrameReader
from kohort.broker.network.memory import MemoryReservation, RequestMemoryBudget
from tests.support.measures.memory import traced_memory
from tests.support.network.wire import framed

LIMIT = 100 * 1024 * 1024


class Side:
    """One connection's reader, and its claim on a budget of its own."""

    def __init__(
        self,
        *,
        limit_bytes: int = LIMIT,
        buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        puts_by: bool = False,
    ) -> None:
        """`puts_by`: other connections read before the frames of a read are taken."""
        self.puts_by = puts_by
        self.memory = RequestMemoryBudget(limit_bytes)
        self.reservation = MemoryReservation(self.memory, self.on_granted)
        self.buffer = memoryview(bytearray(buffer_bytes))
        self.reader = FrameReader(self.buffer, self.reservation, LIMIT)

    def on_granted(self) -> None:
        self.reader.grow()

    def is_waiting_for_memory(self) -> bool:
        return self.reader.is_waiting_for_memory

    def share_buffer(self, other: "Side") -> None:
        """From the begin on, as all connections of a server do."""
        self.buffer = other.buffer
        self.reader = FrameReader(self.buffer, self.reservation, LIMIT)

    def read(self, data: bytes) -> int:
        """One read of a socket that has `data`; returns how much of it fitted."""
        room = self.reader.buffer()
        count = min(len(room), len(data))
        room[:count] = data[:count]
        if not self.puts_by:
            self.reader.received(count)
        elif self.reader.received_small(count):
            self.scribble()
        return count

    def scribble(self) -> None:
        """Another connection uses the buffer now."""
        self.buffer[:] = b"\xee" * len(self.buffer)

    def take_all(self) -> list[bytes]:
        frames = []
        while (frame := self.reader.next_frame()) is not None:
            if isinstance(frame, bytearray):
                self.reservation.release(len(frame))
            frames.append(bytes(frame))
        self.reader.keep_rest()
        self.scribble()
        return frames

    def feed(self, data: bytes) -> list[bytes]:
        frames = []
        while data:
            data = data[self.read(data) :]
            frames += self.take_all()
        return frames


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40) | st.integers(1, 20_000), max_size=12),
    cuts=st.lists(st.integers(1, 9_000), min_size=1, max_size=30),
    buffer_bytes=st.sampled_from([4, 5, 64, 1_000, 8_192]),
    puts_by=st.booleans(),
)
def test_frames_are_the_same_however_they_are_cut(
    sizes: list[int], cuts: list[int], buffer_bytes: int, *, puts_by: bool
) -> None:
    side = Side(buffer_bytes=buffer_bytes, puts_by=puts_by)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    frames = []
    number = 0
    while stream:
        count = cuts[number % len(cuts)]
        number += 1
        frames += side.feed(stream[:count])
        stream = stream[count:]
    assert frames == bodies
    assert side.reservation.held_bytes == 0
    assert side.memory.used_bytes == 0


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 3_000), min_size=1, max_size=8),
    takes=st.lists(st.integers(0, 2), min_size=1, max_size=20),
    cut=st.integers(50, 2_000),
    puts_by=st.booleans(),
)
def test_frames_that_are_left_waiting_come_out_in_order(
    sizes: list[int], takes: list[int], cut: int, *, puts_by: bool
) -> None:
    """A reader that is read into although frames wait, as a transport may do after a pause."""
    side = Side(buffer_bytes=4_096, puts_by=puts_by)
    bodies = [bytes([number + 1]) * size for number, size in enumerate(sizes)]
    stream = b"".join(map(framed, bodies))
    frames: list[bytes] = []
    for start in range(0, len(stream), cut):
        data = stream[start : start + cut]
        while data:
            data = data[side.read(data) :]
            for _ in range(takes[start % len(takes)]):
                frame = side.reader.next_frame()
                if frame is not None:
                    frames.append(bytes(frame))
            side.reader.keep_rest()
            side.scribble()
    frames += side.take_all()
    assert frames == bodies


@settings(deadline=None)
@given(
    sizes=st.lists(st.integers(1, 40) | st.integers(1, 20_000), min_size=3, max_size=12),
    cuts=st.lists(st.integers(1, 5) | st.integers(1, 9_000), min_size=1, max_size=30),
    order=st.lists(st.integers(0, 5), min_size=1, max_size=30),
    buffer_bytes=st.sampled_from([4, 5, 64, 1_000]),
    puts_by=st.booleans(),
)
def test_no_connection_sees_bytes_of_another_however_their_reads_interleave(
    sizes: list[int], cuts: list[int], order: list[int], buffer_bytes: int, *, puts_by: bool
) -> None:
    """Three connections and one buffer. Half of the numbers in `order` are reads that find nothing,
    as libuv's may; the others bring something.
    """
    sides = [Side(buffer_bytes=buffer_bytes, puts_by=puts_by) for _ in range(3)]
    for side in sides[1:]:
        side.share_buffer(sides[0])
    bodies = [[bytes([65 + at]) * size for size in sizes[at::3]] for at in range(3)]
    streams = [b"".join(map(framed, some)) for some in bodies]
    frames: list[list[bytes]] = [[] for _ in sides]
    step = 0
    while any(streams):
        at = order[step % len(order)] if step < 1_000 else step
        step += 1
        if at in {3, 4, 5}:
            sides[at % 3].reader.buffer()
        else:
            some = streams[at % 3][: cuts[step % len(cuts)]]
            streams[at % 3] = streams[at % 3][len(some) :]
            while some:
                some = some[sides[at % 3].read(some) :]
                frames[at % 3] += sides[at % 3].take_all()
    assert frames == bodies
    assert [side.memory.used_bytes for side in sides] == [0, 0, 0]


@pytest.mark.parametrize("kept", [1, 2, 3])
def test_a_read_that_finds_nothing_leaves_the_begin_of_a_size_where_no_one_overwrites_it(
    kept: int,
) -> None:
    side, other = Side(), Side()
    other.share_buffer(side)
    stream = framed(b"mine" * 100)
    assert side.feed(stream[:kept]) == []
    part, held_bytes = side.reader.part, side.reservation.held_bytes
    side.reader.buffer()
    assert (side.reader.part, side.reservation.held_bytes) == (part, held_bytes)
    assert other.feed(framed(b"another's")) == [b"another's"]
    assert side.feed(stream[kept:]) == [b"mine" * 100]


def test_a_frame_that_came_alone_is_counted_until_it_is_taken() -> None:
    side = Side(puts_by=True)
    side.read(framed(b"request"))
    assert side.memory.used_bytes == 11
    assert side.reader.has_frame
    assert side.reader.take_single() == b"request"
    assert side.memory.used_bytes == 0
    assert side.reader.is_empty
    assert side.reader.take_single() is None


def test_a_large_frame_is_read_into_a_buffer_of_its_own() -> None:
    side = Side()
    body = bytes(range(256)) * 8_000
    data = framed(body)
    frame = None
    while data:
        data = data[side.read(data) :]
        frame = side.reader.next_frame()
        side.reader.keep_rest()
    assert isinstance(frame, bytearray)
    view = memoryview(frame)
    side.reservation.release(len(frame))
    assert side.feed(framed(b"the next one" * 20_000)) == [b"the next one" * 20_000]
    assert view == body, "a frame is never written to again"


def test_room_is_made_for_what_arrives_not_for_what_is_announced() -> None:
    """A hundred connections announce a hundred megabytes each, and send a byte of them."""
    sides = [Side(buffer_bytes=64) for _ in range(100)]
    with traced_memory() as taken:
        for side in sides:
            side.feed(struct.pack(">i", LIMIT) + b"x")
        held = taken()
    assert held < 100 * 8_000
    assert all(side.reservation.held_bytes <= 8_000 for side in sides)


def test_room_grows_with_few_copies() -> None:
    side = Side()
    stream = framed(bytes(20_000_000))
    rooms = set()
    for start in range(0, len(stream), 50_000):
        side.feed(stream[start : start + 50_000])
        rooms.add(id(side.reader._large))
        arrived = min(start + 50_000, len(stream))
        assert side.reservation.held_bytes <= max(8 * arrived, 4_096)
    assert len(rooms) <= 6


@pytest.mark.parametrize("first", [78_000, 131_072, 256_000])
def test_a_batch_of_ordinary_size_is_received_into_one_large(first: int) -> None:
    """What a producer's batch of 1 MB brings with its first read says that the rest will come."""
    side = Side()
    stream = framed(bytes(1_000_000))
    assert side.feed(stream[:first]) == []
    room = side.reader._large
    for start in range(first, len(stream) - 50_000, 50_000):
        buffer = side.reader.buffer()
        assert buffer.obj is room
        buffer[:50_000] = stream[start : start + 50_000]
        assert not side.reader.received(50_000), "there is nothing to do before the rest is here"
    left = len(side.reader.buffer())
    assert side.reader.received(left)
    assert side.reader.next_frame() is room


@pytest.mark.parametrize("size", [0, -1, -(2**31), LIMIT + 1, 2**31 - 1])
def test_a_size_that_cannot_be_one_is_refused(size: int) -> None:
    side = Side()
    side.read(struct.pack(">i", size))
    with pytest.raises(FrameError, match=str(size)):
        side.reader.next_frame()


@pytest.mark.parametrize("puts_by", [False, True])
@pytest.mark.parametrize("more", [b"", b"\0", framed(b"next")])
def test_a_frame_that_arrives_whole_may_not_exceed_the_limit(*, puts_by: bool, more: bytes) -> None:
    side = Side(puts_by=puts_by)
    side.reader.frame_max_bytes = 100
    side.read(framed(b"x" * 100))
    assert side.reader.next_frame() == b"x" * 100
    side.reader.keep_rest()
    side.read(framed(b"x" * 101) + more)
    with pytest.raises(FrameError, match="101"):
        side.reader.next_frame()


@pytest.mark.parametrize("kept", [1, 2, 3, 4])
def test_a_bad_size_is_refused_however_it_arrives(kept: int) -> None:
    side = Side()
    side.read(struct.pack(">i", -1)[:kept])
    with pytest.raises(FrameError, match="size -1"):  # noqa: PT012 - whichever sees it first.
        side.reader.keep_rest()
        side.read(struct.pack(">i", -1)[kept:])
        side.reader.next_frame()


@pytest.mark.parametrize(
    ("begin", "name"),
    [
        (b"GET / HTTP/1.1\r\n", "an HTTP request"),
        (b"POST /topics HTTP/1.1", "an HTTP request"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "a TLS handshake"),
        (b"\x16\x03\x03\x00\xf0", "a TLS handshake"),
        (b"SSH-2.0-OpenSSH", "an SSH client"),
    ],
)
def test_other_protocols_are_named(begin: bytes, name: str) -> None:
    side = Side()
    side.read(begin)
    with pytest.raises(FrameError, match=name):
        side.reader.next_frame()


def test_a_frame_waits_for_memory_that_others_hold_and_goes_on_when_it_is_given_back() -> None:
    side = Side(limit_bytes=1_000_000)
    other = MemoryReservation(side.memory, lambda: None)
    overdrawn = MemoryReservation(side.memory, lambda: None)
    other.add(900_000)
    assert overdrawn.reserve(600_000), "one may exceed the budget"
    overdrawn.left_bytes = 1
    body = b"y" * 500_000
    stream = framed(body)
    sent = side.read(stream[:RECEIVE_BUFFER_BYTES])
    assert side.take_all() == []
    assert side.is_waiting_for_memory()
    assert side.reservation.held_bytes <= RECEIVE_BUFFER_BYTES
    other.release(900_000)
    overdrawn.release(600_000)
    assert not side.is_waiting_for_memory()
    assert side.feed(stream[sent:]) == [body]
    assert side.memory.used_bytes == 0


@pytest.mark.parametrize("early_bytes", [1, 20_000])
def test_bytes_that_come_while_there_is_no_room_for_them_do_not_make_the_room_too_large(
    early_bytes: int,
) -> None:
    """From a transport that was told to pause and reads all the same."""
    side = Side(limit_bytes=1_000)
    hog = MemoryReservation(side.memory, lambda: None)
    assert hog.reserve(100_000)
    hog.left_bytes = 1
    body = b"y" * 80_000
    stream = framed(body) + framed(b"next")
    begun = 4 + 60_000
    assert side.feed(stream[:begun]) == []
    assert side.is_waiting_for_memory()
    frames = side.feed(stream[begun : begun + early_bytes])
    hog.release(100_000)
    assert not side.is_waiting_for_memory()
    frames += side.feed(stream[begun + early_bytes :])
    assert frames == [body, b"next"]
    assert side.memory.used_bytes == side.reservation.held_bytes == 0


def test_an_unfinished_frame_can_be_told_from_the_next_one() -> None:
    side = Side()
    side.feed(b"\x00\x00")
    first = side.reader.part
    assert first is not None
    side.feed(b"\x00\x05ab")
    second = side.reader.part
    assert second is not None
    assert (second.number > first.number, second.filled_bytes) == (True, 2)
    side.feed(b"cd")
    assert side.reader.part == (second.number, 4)
    assert side.feed(b"e\x00") == [b"abcde"]
    third = side.reader.part
    assert third is not None
    assert third.number > second.number
    side.feed(b"\x00\x00\x01x")
    assert side.reader.part is None
