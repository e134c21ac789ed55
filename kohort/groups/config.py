"""The settings that the rules of a group use."""

from typing import NamedTuple


class GroupConfig(NamedTuple):
    """Durations are in milliseconds; defaults are Kafka's where Kafka has the setting."""

    min_session_timeout_ms: int = 6_000
    max_session_timeout_ms: int = 1_800_000
    initial_rebalance_delay_ms: int = 3_000
    max_size: int = 2**31 - 1
    """Maximum number of members of one group."""
    new_member_join_timeout_ms: int = 300_000
    """How long a member that has never completed a join may stay parked; a constant in Kafka."""
    offset_metadata_max_units: int = 4_096
    """Maximum length of commit metadata, in UTF-16 units as Java counts, inclusive."""
    offsets_retention_ms: int = 7 * 24 * 3_600_000
    pending_ids_max: int = 100_000
    """Maximum number of ids handed out with MEMBER_ID_REQUIRED and not used yet. Beyond it the
    oldest is forgotten: its client has to start over, but a client that only collects ids cannot
    keep others out."""
    metadata_bytes_max: int = 8 * 1024 * 1024
    """Maximum size of all members' protocols and names in one group; beyond it the group counts as
    full. Kafka's limit is 1 MiB for the stored group, which a few thousand members reach."""
    check_partition_counts: bool = True
    """Rebalance when a leader returns and the partition counts of its topics have changed since the
    assignment. KIP-814 leaves such changes undetected."""
    check_replaced_topics: bool = False
    """Rebalance when a static member returns with a changed subscription; Kafka does not."""
