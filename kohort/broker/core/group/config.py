"""What the rules of a group read from the broker's configuration."""

from typing import NamedTuple


class GroupConfig(NamedTuple):
    """Durations in milliseconds; defaults are Kafka's where Kafka has the setting."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    """Members of one group."""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that has never completed a join may stay parked; fixed in Kafka."""
    offset_metadata_max_units: int = 4_096
    """Longest text with a committed offset, in UTF-16 units as Java counts, inclusive."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    pending_ids_max: int = 100_000
    """Ids handed out with MEMBER_ID_REQUIRED and not used yet. Beyond it the oldest is forgotten:
    its owner starts over, while a client that only collects ids cannot keep others out."""
    metadata_bytes_max: int = 128 * 1024 * 1024
    """What members of one group may tell their assignors, all together, with what they are called;
    beyond it the group counts as full. Kafka's bound is 1 MiB for the stored group, which a few
    thousand members reach."""
    check_partition_counts: bool = True
    """Rebalance when a leader returns and its topics have other partition counts than when the
    assignment was made; closes the gap that KIP-814 admits."""
    check_replaced_topics: bool = False
    """Rebalance when a static member returns with other topics; Kafka does not."""
