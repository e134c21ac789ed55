"""Creates the objects that execute groups' requests; imported when the first group is created."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.group import clamped
from kohort.broker.coordinator.requests.consumer import short_id
from kohort.broker.environment import Environment
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.topic import Catalog
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.unused_ids import UnusedIds
from kohort.groups.consumer.data import ConsumerSettings
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.group import Group
from kohort.groups.member_memory import MemberAccount, MemberMemory
from kohort.groups.share.data import ShareSettings
from kohort.groups.topics import Topic

if TYPE_CHECKING:
    from kohort.groups.share.membership import ShareMembership


class Memberships:
    """Creates objects that execute a group's requests; counts members and memory of all groups."""

    def __init__(
        self, config: BrokerConfig, environment: Environment, topics: TopicManager
    ) -> None:
        self._environment = environment
        self._topics = topics
        self._unused_ids = UnusedIds()
        self._member_memory = MemberMemory(config.kohort_groups_metadata_bytes_max)
        self._consumer_members = MemberAccount(self._member_memory)
        self._share_members = MemberAccount(self._member_memory)
        self._consumer_settings = ConsumerGroupSettings(
            lambda: topics.settings, self._consumer_members
        )

    def classic(self, group: Group) -> ClassicMembership:
        """Return an object that executes the group's requests by the classic protocol."""
        environment, topics = self._environment, self._topics

        def partition_count(name: str) -> int | None:
            topic = topics.get(name)
            return None if topic is None else len(topic.partitions)

        return ClassicMembership(
            ClassicData(
                group,
                new_member_id=lambda prefix: f"{prefix}-{environment.new_uuid()}",
                partition_count=partition_count,
                grown_since=topics.changes.grown_since,
                unused_ids=self._unused_ids,
                member_memory=self._member_memory,
            )
        )

    def consumer(self, group: Group) -> ConsumerMembership:
        """Return an object that executes a consumer group's requests (KIP-848)."""
        environment = self._environment
        return ConsumerMembership(
            group,
            GroupTopics(self._topics.catalog),
            self._consumer_settings,
            self._consumer_members,
            new_classic=self.classic,
            new_member_id=lambda: short_id(environment.new_uuid().bytes),
        )

    def share(self, group: Group) -> "ShareMembership":
        """Return an object that executes a share group's requests (KIP-932); its modules are
        imported at the first call.
        """
        from kohort.groups.share.membership import ShareMembership  # noqa: PLC0415

        return ShareMembership(
            group, GroupTopics(self._topics.catalog), self._share_settings, self._share_members
        )

    def _share_settings(self, group_id: str) -> ShareSettings:
        current = self._topics.settings
        config = current.config
        configs = current.groups.get(group_id, {})

        def own(name: str, broker_ms: int) -> int:
            own_ms = clamped(configs, name, config)
            return broker_ms if own_ms is None else own_ms

        longest_ms = config.group_share_heartbeat_interval_ms
        heartbeat_ms = _heartbeat_ms(config, self._share_members.count, longest_ms)
        return ShareSettings(
            own("share.session.timeout.ms", config.group_share_session_timeout_ms),
            own("share.heartbeat.interval.ms", heartbeat_ms),
            own("share.assignment.interval.ms", config.group_share_assignment_interval_ms),
            config.group_share_max_size,
        )


class GroupTopics:
    """Adapts the topic catalog to the interface through which groups read topics."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    @property
    def version(self) -> int:
        return self._catalog.version

    def get(self, name: str) -> Topic | None:
        topic = self._catalog.get(name)
        return None if topic is None else Topic(topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: bytes) -> str | None:
        topic = self._catalog.get_by_id(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return [topic.name for topic in self._catalog.all()]


HEARTBEAT_INTERVAL_MIN_MS: Final = 500
"""The lower limit of the heartbeat interval sent to members."""


class ConsumerGroupSettings:
    """A function that returns the settings of a group by its id."""

    def __init__(self, settings: Callable[[], CurrentConfig], members: MemberAccount) -> None:
        """`members` counts the members of all consumer groups."""
        self._settings = settings
        self._members = members
        self._config: BrokerConfig | None = None
        self._base = ConsumerSettings()
        self._latest = self._base
        """Cached settings of groups without own configs: every heartbeat reads them several
        times."""

    def __call__(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a group. Unless the group sets its own heartbeat interval, the
        interval depends on the number of members of all consumer groups: if there are few, each
        may send heartbeats often, and so gets its partitions soon.
        """
        settings = self._settings()
        config = settings.config
        if config is not self._config:
            self._config = config
            self._base = self._latest = _of_broker(config)
        base = self._base
        configs = settings.groups.get(group_id)
        if not configs:
            heartbeat_ms = self._interval_ms(config, base)
            if heartbeat_ms != self._latest.heartbeat_interval_ms:
                self._latest = base._replace(heartbeat_interval_ms=heartbeat_ms)
            return self._latest
        session_ms = clamped(configs, "consumer.session.timeout.ms", config)
        interval_ms = clamped(configs, "consumer.assignment.interval.ms", config)
        own_ms = clamped(configs, "consumer.heartbeat.interval.ms", config)
        return base._replace(
            session_timeout_ms=base.session_timeout_ms if session_ms is None else session_ms,
            assignment_interval_ms=(
                base.assignment_interval_ms if interval_ms is None else interval_ms
            ),
            heartbeat_interval_ms=self._interval_ms(config, base) if own_ms is None else own_ms,
        )

    def _interval_ms(self, config: BrokerConfig, base: ConsumerSettings) -> int:
        return _heartbeat_ms(config, self._members.count, base.heartbeat_interval_ms)


def _heartbeat_ms(config: BrokerConfig, member_count: int, longest_ms: int) -> int:
    """Return the heartbeat interval for this number of members on the broker."""
    per_second = config.kohort_group_consumer_heartbeats_per_second
    if not per_second:
        return longest_ms
    return min(max(1_000 * member_count // per_second, HEARTBEAT_INTERVAL_MIN_MS), longest_ms)


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
