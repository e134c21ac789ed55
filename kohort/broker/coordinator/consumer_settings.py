"""The settings of each consumer group, from the broker's."""

from __future__ import annotations

from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.groups.consumer.settings import ConsumerSettings, MemberAccount

HEARTBEAT_INTERVAL_MIN_MS: Final = 500
"""Members are never told to send heartbeats more often."""


class ConsumerGroupSettings:
    """Returns the settings of a group by its id when called."""

    def __init__(self, config: BrokerConfig, members: MemberAccount) -> None:
        """`members` counts the members of all consumer groups."""
        self._members = members
        self._heartbeats_per_second = config.kohort_group_consumer_heartbeats_per_second
        policy = config.group_consumer_migration_policy.lower()
        self._base = ConsumerSettings(
            session_timeout_ms=config.group_consumer_session_timeout_ms,
            heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
            assignment_interval_ms=config.group_consumer_assignment_interval_ms,
            max_size=config.group_consumer_max_size,
            assignors=config.group_consumer_assignors,
            regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            allows_upgrade=policy in {"bidirectional", "upgrade"},
            allows_downgrade=policy in {"bidirectional", "downgrade"},
            allows_classic_members=policy != "disabled",
        )

    def __call__(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a group. The heartbeat interval follows the number of members of
        all groups: with few of them, each may send heartbeats often, and so gets its partitions
        soon.
        """
        del group_id
        base = self._base
        if not self._heartbeats_per_second:
            return base
        interval_ms = 1_000 * self._members.count // self._heartbeats_per_second
        interval_ms = max(interval_ms, HEARTBEAT_INTERVAL_MIN_MS)
        return base._replace(heartbeat_interval_ms=min(interval_ms, base.heartbeat_interval_ms))
