"""The settings of share groups: the broker's, overridden by the configs of a group."""

from collections.abc import Callable
from typing import Any, NamedTuple

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.group import group_value
from kohort.broker.config.share import LATEST, reset_policy
from kohort.groups.share.window import WindowSettings


class GroupSettings(NamedTuple):
    window: WindowSettings
    committed_only: bool = False
    """Whether the group reads committed records only."""
    reset_policy: int = LATEST
    """Where a share-partition begins: EARLIEST, LATEST, or this many milliseconds before now."""
    dead_letter_topic: str = ""
    """Topic for dead letters; empty if the group has no dead-letter queue."""
    copies_records: bool = False
    """Whether dead letters contain the key and value of the original record."""


class ShareSettings:
    """Returns the settings of a group by its id when called."""

    def __init__(self, settings: Callable[[], CurrentConfig]) -> None:
        self._settings = settings
        self._config: BrokerConfig | None = None
        self._base = GroupSettings(WindowSettings())
        self._own: dict[str, tuple[object, GroupSettings]] = {}
        """Cached settings of groups that have configs, each with the configs they were computed
        from.
        """

    def __call__(self, group_id: str) -> GroupSettings:
        current = self._settings()
        config = current.config
        if config is not self._config:
            self._config = config
            self._base = GroupSettings(
                WindowSettings(
                    lock_duration_ms=config.group_share_record_lock_duration_ms,
                    delivery_count_limit=config.group_share_delivery_count_limit,
                    max_record_locks=config.group_share_partition_max_record_locks,
                )
            )
            self._own.clear()
        configs = current.groups.get(group_id)
        if not configs:
            return self._base
        cached = self._own.get(group_id)
        if cached is not None and cached[0] is configs:
            return cached[1]

        def value(name: str) -> Any:  # noqa: ANN401 - of the type that the config has.
            return group_value(configs, name, config)

        dead_letter_topic = value("errors.deadletterqueue.topic.name")
        made = GroupSettings(
            WindowSettings(
                lock_duration_ms=value("share.record.lock.duration.ms"),
                delivery_count_limit=value("share.delivery.count.limit"),
                max_record_locks=value("share.partition.max.record.locks"),
                renew_enabled=value("share.renew.acknowledge.enable"),
                has_dead_letters=bool(dead_letter_topic),
            ),
            committed_only=value("share.isolation.level") == "read_committed",
            reset_policy=reset_policy(value("share.auto.offset.reset")),
            dead_letter_topic=dead_letter_topic,
            copies_records=value("errors.deadletterqueue.copy.record.enable"),
        )
        self._own[group_id] = (configs, made)
        return made
