"""Committed offsets are read from the bytes of their records."""

import pytest

from kohort.admin.cluster import Cluster, RefusedError
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.offsets_topic import OffsetCommitValue
from kohort.watch.core.commits import Commit, committed
from kohort.watch.positions import PositionsReader


def value(version: int, offset: int, *, metadata: str = "", at_ms: int = 7) -> bytes:
    stored = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=at_ms)
    return encode_versioned(stored, version)


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_every_version_has_its_offset_and_time(version: int) -> None:
    for metadata in ("", "café", 200 * "x"):
        found = committed(value(version, 2**40, metadata=metadata, at_ms=2**41))
        assert found is not None
        assert (found.offset, found.commit_timestamp_ms) == (2**40, 2**41)


def test_a_value_that_is_cut_short_has_no_offset() -> None:
    whole = value(3, 5)
    assert [committed(whole[:size]) for size in range(len(whole))] == [None] * len(whole)


def test_while_the_cluster_does_not_answer_offsets_have_no_ends() -> None:
    def connect() -> Cluster:
        raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, "none")

    commits = [Commit("g", ("t", number), b"", value(4, number)) for number in range(3)]
    reader = PositionsReader(lambda: [*commits, Commit("g", ("t", 9), b"", b"")], connect)
    positions = reader.read()
    assert positions.readable == {}
    offsets = positions.by_group["g"]
    assert {number: one.offset for number, one in offsets.topics()["t"].items()} == {
        0: 0,
        1: 1,
        2: 2,
    }
    commits[0].value = value(4, 8)
    assert offsets.topics()["t"][0].offset == 8
    assert offsets.count == 3
