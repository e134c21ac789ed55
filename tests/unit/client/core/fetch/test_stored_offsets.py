import pytest

from kohort.client.core.errors import IllegalStateError
from kohort.client.core.fetch.positions import Positions, StoredOffsets
from kohort.client.core.offsets import OffsetAndMetadata
from kohort.client.core.partitions import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def made() -> tuple[Positions, StoredOffsets]:
    positions = Positions()
    positions.set_assigned([A, B])
    positions.committed_found(A, OffsetAndMetadata(10), None)
    return positions, StoredOffsets(positions)


def offsets(stored: StoredOffsets) -> dict[TopicPartition, int]:
    return {one: found.offset for one, found in stored.committable().items()}


def test_what_was_stored_before_a_partition_went_and_came_back_is_forgotten() -> None:
    positions, stored = made()
    stored.store({A: OffsetAndMetadata(12)})
    positions.set_assigned([B])
    positions.set_assigned([A, B])
    positions.committed_found(A, OffsetAndMetadata(50), None)
    assert offsets(stored) == {}
    # A handler that has only now come to its end with a record of the first time.
    stored.store({A: OffsetAndMetadata(13)})
    assert offsets(stored) == {}
    stored.store({A: OffsetAndMetadata(51)})
    assert offsets(stored) == {A: 51}


def test_before_a_partition_has_a_position_nothing_is_stored_of_it() -> None:
    _, stored = made()
    stored.store({B: OffsetAndMetadata(1)})
    assert offsets(stored) == {}


def test_after_a_seek_back_lower_ones_are_stored_as_well() -> None:
    positions, stored = made()
    positions.seek(A, 3)
    stored.store({A: OffsetAndMetadata(4)})
    assert offsets(stored) == {A: 4}


def test_of_several_all_are_stored_or_none() -> None:
    _, stored = made()
    strange = TopicPartition("t", 7)
    with pytest.raises(IllegalStateError, match="t-7 is not assigned"):
        stored.store({A: OffsetAndMetadata(12), strange: OffsetAndMetadata(1)})
    with pytest.raises(ValueError, match="-1"):
        stored.store({A: OffsetAndMetadata(-1)})
    assert offsets(stored) == {}
