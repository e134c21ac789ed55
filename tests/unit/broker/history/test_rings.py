"""What is kept in memory, and what goes first."""

from kohort.broker.history.rings import (
    FORGOTTEN_AT_ONCE,
    GROUP_OVERHEAD_BYTES,
    PACKED_FROM_BYTES,
    RECORD_OVERHEAD_BYTES,
    Rings,
    pack,
)

RECORD_BYTES = 1_000
TEXT = b"x" * (RECORD_BYTES - RECORD_OVERHEAD_BYTES - 1)
"""One byte tells how it is kept."""


def texts(rings: Rings, group_id: str) -> list[bytes]:
    ring = rings.get(group_id)
    return [] if ring is None else [packed.text for packed in ring.records]


def filled(size: int = 100, memory_bytes: int = 1 << 20) -> Rings:
    return Rings(size, memory_bytes)


def add(rings: Rings, group_id: str, sequence: int, text: bytes = TEXT) -> None:
    rings.add(group_id, sequence, pack(text), is_rebalance=True)


def test_a_group_keeps_its_last_records() -> None:
    rings = filled(size=3)
    for number in range(1, 6):
        add(rings, "g", number, b"%d" % number)
    assert texts(rings, "g") == [b"3", b"4", b"5"]
    ring = rings.get("g")
    assert ring is not None
    assert (ring.last_sequence, ring.rebalance_count, ring.avoided_count) == (5, 5, 0)


def test_memory_is_accounted_exactly() -> None:
    rings = filled(size=2)
    for number in range(5):
        add(rings, "g", number)
        add(rings, "other", number)
    expected = 4 * RECORD_BYTES + 2 * GROUP_OVERHEAD_BYTES + len("g") + len("other")
    assert rings.memory_bytes == expected
    rings.mark_removed("g", 5)
    rings.forget_removed(6)
    assert rings.memory_bytes == 2 * RECORD_BYTES + GROUP_OVERHEAD_BYTES + len("other")


def test_the_group_that_was_quiet_for_longest_loses_its_oldest_first() -> None:
    rings = filled(memory_bytes=5 * RECORD_BYTES + 2 * GROUP_OVERHEAD_BYTES + 10)
    for number in range(3):
        add(rings, "quiet", number)
    for number in range(3):
        add(rings, "busy", number)
    assert len(texts(rings, "quiet")) == 2
    assert len(texts(rings, "busy")) == 3


def test_removed_groups_go_before_all_others() -> None:
    rings = filled(memory_bytes=5 * RECORD_BYTES + 3 * GROUP_OVERHEAD_BYTES + 20)
    add(rings, "old", 1)
    add(rings, "removed", 1)
    add(rings, "removed", 2)
    rings.mark_removed("removed", 5)
    for number in range(3):
        add(rings, "busy", number)
    assert (len(texts(rings, "old")), len(texts(rings, "removed"))) == (1, 1)


def test_groups_are_as_bounded_as_records() -> None:
    rings = filled(memory_bytes=100 * RECORD_BYTES)
    for number in range(10_000):
        add(rings, f"group-{number}", 1, b"")
    assert rings.memory_bytes <= 100 * RECORD_BYTES
    assert len(rings) < 200


def test_a_single_record_that_is_too_large_is_not_kept() -> None:
    rings = filled(memory_bytes=1_000)
    rings.add("g", 1, pack(bytes(2_000)), is_rebalance=True)
    assert len(rings) == 0
    assert rings.memory_bytes == 0


def test_removed_groups_are_forgotten_after_a_while_unless_they_come_back() -> None:
    rings = filled()
    for group_id in ("first", "second", "third"):
        add(rings, group_id, 1)
    rings.mark_removed("first", 10)
    rings.mark_removed("second", 20)
    rings.mark_removed("never heard of", 20)
    add(rings, "first", 2)
    rings.forget_removed(15)
    assert set(rings) == {"first", "second", "third"}
    rings.forget_removed(21)
    assert set(rings) == {"first", "third"}


def test_large_texts_are_packed_and_come_back_whole() -> None:
    text = b'{"member_id":"m"},' * PACKED_FROM_BYTES
    packed = pack(text)
    assert len(packed) < len(text) / 10
    rings = filled()
    rings.add("g", 1, packed, is_rebalance=True)
    assert texts(rings, "g") == [text]
    assert pack(b"small") == b"\0small"


def test_a_group_that_is_forgotten_frees_its_memory() -> None:
    rings = filled()
    for number in range(300):
        add(rings, f"group-{number}", 1, bytes(2_000))
        rings.mark_removed(f"group-{number}", number)
    for call in range(1, 300 // FORGOTTEN_AT_ONCE + 1):
        rings.forget_removed(300)
        assert len(rings) == 300 - call * FORGOTTEN_AT_ONCE
    assert rings.memory_bytes == 0


def test_the_head_of_a_record_is_had_without_the_rest() -> None:
    for text in (b'{"group":"g"}', b'{"group":"g","members":' + b"0," * PACKED_FROM_BYTES):
        assert pack(text).head(12) == text[:12]
        assert pack(text).text == text


def test_the_last_record_can_be_replaced() -> None:
    rings = filled()
    add(rings, "g", 1, b"kept")
    add(rings, "g", 2, b"running")
    rings.replace_last("g", pack(b"done"))
    assert texts(rings, "g") == [b"kept", b"done"]
    expected = 2 * (RECORD_OVERHEAD_BYTES + len("xkept")) + GROUP_OVERHEAD_BYTES + len("g")
    assert rings.memory_bytes == expected
