"""What a watcher sees of a group, besides the values themselves."""

from typing import NamedTuple

from kohort.groups.records import DurableRecord


class Place(NamedTuple):
    """Where a record of __consumer_offsets is."""

    partition: int
    offset: int
    leader_epoch: int = -1
    """Of its batch; it increases when another broker becomes the coordinator."""
    in_transaction: bool = False
    gap_offset: int = -1
    """The last offset before which records of the partition are missing: compaction has removed
    them."""
    epoch_ms: int = -1
    """Time of the first record of the partition with this leader epoch."""


class Seen(NamedTuple):
    """A record of __consumer_offsets."""

    record: DurableRecord
    at_ms: int
    """Its timestamp: the coordinator's clock."""
    place: Place


class Poll(NamedTuple):
    """What ListGroups and DescribeGroups returned about a group that was rebalancing."""

    at_ms: int
    state: str
    member_ids: frozenset[str]
