import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.client.net.frames import FRAME_BYTES_MAX, GREETING_BYTES_MAX, FrameReader

sizes = st.integers(0, 20) | st.integers(65_520, 65_540) | st.integers(100_000, 300_000)


def feed(reader: FrameReader, data: bytes, step: int) -> list[bytes]:
    """Feed as a socket would: never more than there is room for, here at most `step` at a time."""
    frames: list[bytes] = []
    position = 0
    while position < len(data):
        room = reader.buffer()
        assert len(room)
        piece = data[position : position + min(len(room), step)]
        room[: len(piece)] = piece
        position += len(piece)
        frames += map(bytes, reader.received(len(piece)))
    return frames


@settings(deadline=None)
@given(sizes=st.lists(sizes, max_size=8), step=st.sampled_from([1, 3, 7_000, 1 << 20]))
def test_frames_come_out_as_they_went_in_however_they_are_cut(sizes: list[int], step: int) -> None:
    if step < 10:
        sizes = [size for size in sizes if size < 100_000][:1]
    bodies = [bytes([place % 251]) * size for place, size in enumerate(sizes)]
    data = b"".join(len(body).to_bytes(4, "big") + body for body in bodies)
    reader = FrameReader()
    reader.bytes_max = FRAME_BYTES_MAX
    assert feed(reader, data, step) == bodies


def test_a_size_that_no_one_asked_for_is_refused_before_there_is_room_for_it() -> None:
    with pytest.raises(ValueError, match="frame"):
        feed(FrameReader(), (FRAME_BYTES_MAX + 1).to_bytes(4, "big"), 4)
    with pytest.raises(ValueError, match="frame"):
        feed(FrameReader(), (GREETING_BYTES_MAX + 1).to_bytes(4, "big"), 4)


@pytest.mark.parametrize(
    ("first_bytes", "what"),
    [
        (b"HTTP/1.1 400 Bad Request", "web server"),
        (b"\x15\x03\x03\x00\x02\x02\x46", "set security_protocol to SSL or SASL_SSL"),
    ],
)
def test_what_answers_instead_of_a_broker_is_named(first_bytes: bytes, what: str) -> None:
    with pytest.raises(ValueError, match=what):
        feed(FrameReader(), first_bytes, 100)
