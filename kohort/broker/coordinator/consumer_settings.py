"""The settings of each consumer group, from the broker's and its own configs."""

from collections.abc import Callable
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.group import clamped
from kohort.groups.consumer.settings import ConsumerSettings, MemberAccount

HEARTBEAT_INTERVAL_MIN_MS: Final = 500
"""Members are never told to send heartbeats more often."""


class ConsumerGroupSettings:
    """Returns the settings of a group by its id when called."""

    def __init__(self, settings: Callable[[], CurrentConfig], members: MemberAccount) -> None:
        """`members` counts the members of all consumer groups."""
        self._settings = settings
        self._members = members
        self._config: BrokerConfig | None = None
        self._base = ConsumerSettings()

    def __call__(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a group. Unless it sets its own, the heartbeat interval follows
        the number of members of all groups: with few of them, each may send heartbeats often, and
        so gets its partitions soon.
        """
        settings = self._settings()
        config = settings.config
        if config is not self._config:
            self._config = config
            self._base = _of_broker(config)
        base = self._base
        configs = settings.groups.get(group_id)
        heartbeat_ms = None
        if configs:
            session_ms = clamped(configs, "consumer.session.timeout.ms", config)
            interval_ms = clamped(configs, "consumer.assignment.interval.ms", config)
            heartbeat_ms = clamped(configs, "consumer.heartbeat.interval.ms", config)
            base = base._replace(
                session_timeout_ms=base.session_timeout_ms if session_ms is None else session_ms,
                assignment_interval_ms=(
                    base.assignment_interval_ms if interval_ms is None else interval_ms
                ),
            )
        if heartbeat_ms is None:
            heartbeat_ms = self._interval_ms(config, base)
        return base._replace(heartbeat_interval_ms=heartbeat_ms)

    def _interval_ms(self, config: BrokerConfig, base: ConsumerSettings) -> int:
        per_second = config.kohort_group_consumer_heartbeats_per_second
        if not per_second:
            return base.heartbeat_interval_ms
        interval_ms = max(1_000 * self._members.count // per_second, HEARTBEAT_INTERVAL_MIN_MS)
        return min(interval_ms, base.heartbeat_interval_ms)


def _of_broker(config: BrokerConfig) -> ConsumerSettings:
    policy = config.group_consumer_migration_policy.lower()
    return ConsumerSettings(
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
