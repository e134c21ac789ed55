"""Builds the coordinators of groups and of transactions from the settings."""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from kohort.broker.config import BrokerConfig
from kohort.broker.config.current import CurrentConfig
from kohort.broker.config.group import clamped
from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator
from kohort.broker.coordinator.host import GroupHost, GroupObserver
from kohort.broker.coordinator.log.topic_log import TopicOffsetsLog
from kohort.broker.coordinator.requests.consumer import short_id
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.environment import Environment
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.catalog import Catalog
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import TRANSACTION_STATE, internal_topic_configs
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.log import TopicTransactionLog
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.reconciling import find_epochs, find_open
from kohort.broker.transactions.transactions import Transactions
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.classic.unused_ids import UnusedIds
from kohort.groups.config import GroupConfig
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.settings import ConsumerSettings, MemberAccount, Topic
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberMemory


def make_groups(
    config: BrokerConfig,
    environment: Environment,
    topics: TopicManager,
    purgatory: Purgatory,
    observers: Sequence[GroupObserver],
    background_tasks: BackgroundTasks,
) -> GroupCoordinator:
    """Return the group coordinator; its log is not loaded yet."""

    def partition_count(name: str) -> int | None:
        topic = topics.get(name)
        return None if topic is None else len(topic.partitions)

    def topic_id(name: str) -> bytes | None:
        topic = topics.get(name)
        return None if topic is None else topic.topic_id

    group_config = GroupConfig(
        min_session_timeout_ms=max(0, config.group_min_session_timeout_ms),
        max_session_timeout_ms=config.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=max(0, config.group_initial_rebalance_delay_ms),
        max_size=config.group_max_size,
        offset_metadata_max_units=config.offset_metadata_max_bytes,
        offsets_retention_ms=config.offsets_retention_minutes * 60_000,
        pending_ids_max=config.kohort_group_pending_ids_max,
        metadata_bytes_max=config.kohort_group_metadata_bytes_max,
    )

    unused_ids = UnusedIds()
    member_memory = MemberMemory(config.kohort_groups_metadata_bytes_max)

    def new_classic(group: Group) -> ClassicMembership:
        return ClassicMembership(
            ClassicData(
                group,
                new_member_id=lambda prefix: f"{prefix}-{environment.new_uuid()}",
                partition_count=partition_count,
                grown_since=topics.changes.grown_since,
                unused_ids=unused_ids,
                member_memory=member_memory,
            )
        )

    consumer_members = MemberAccount(member_memory)
    consumer_settings = ConsumerGroupSettings(lambda: topics.settings, consumer_members)
    host = GroupHost(
        CoordinatorConfig(
            group_config,
            commit_timeout_ms=config.offsets_commit_timeout_ms,
            sweep_interval_ms=config.offsets_retention_check_interval_ms,
            groups_max=config.kohort_groups_max,
            inbox_max=config.kohort_group_inbox_max,
        ),
        log=TopicOffsetsLog(topics, config),
        purgatory=purgatory,
        clock=environment.clock,
        new_membership={
            GroupKind.CLASSIC: new_classic,
            GroupKind.CONSUMER: lambda group: ConsumerMembership(
                group,
                GroupTopics(topics.catalog),
                consumer_settings,
                consumer_members,
                new_classic=new_classic,
                new_member_id=lambda: short_id(environment.new_uuid().bytes),
            ),
        },
        topic_id=topic_id,
        observers=observers,
        background_tasks=background_tasks,
    )
    topics.changes.on_topics_deleted(host.forget_topics)
    return GroupCoordinator(host)


def make_transactions(
    config: BrokerConfig,
    clock: Clock,
    topics: TopicManager,
    groups: GroupCoordinator,
    purgatory: Purgatory,
    background_tasks: BackgroundTasks,
) -> Transactions:
    """Return the transaction coordinator; its log is not loaded yet."""
    log = InternalLog(
        topics,
        TRANSACTION_STATE,
        partition_count=config.transaction_state_log_num_partitions,
        configs=internal_topic_configs(TRANSACTION_STATE, config),
    )
    host = TransactionHost(
        TransactionsConfig(
            TransactionConfig(
                max_timeout_ms=config.transaction_max_timeout_ms,
                id_expiration_ms=config.transactional_id_expiration_ms,
            ),
            ids_max=config.kohort_transactional_ids_max,
            timeout_check_ms=config.transaction_abort_timed_out_transaction_cleanup_interval_ms,
            expiry_check_ms=config.transaction_remove_expired_transaction_cleanup_interval_ms,
        ),
        log=TopicTransactionLog(log),
        markers=PartitionMarkers(topics.partition, groups, clock),
        purgatory=purgatory,
        clock=clock,
        new_producer_id=topics.next_producer_id,
        background_tasks=background_tasks,
    )
    settings = topics.settings
    return Transactions(
        host, verifies=lambda: settings.config.transaction_partition_verification_enable
    )


async def load_transactions(host: TransactionHost, topics: TopicManager) -> None:
    """Load the transactional ids, and complete transactions whose outcome was decided."""
    # After an unclean stop, all partitions are open by now; after a clean one, nothing was lost.
    was_clean = topics.disk.data.was_clean

    def opened() -> list[Partition]:
        return [] if was_clean else list(topics.disk.opened())

    await host.start(lambda: find_open(opened()), lambda: find_epochs(opened()))


class GroupTopics:
    """See :class:`kohort.groups.consumer.settings.Topics`."""

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
    """Returns the settings of a group by its id when called."""

    def __init__(self, settings: Callable[[], CurrentConfig], members: MemberAccount) -> None:
        """`members` counts the members of all consumer groups."""
        self._settings = settings
        self._members = members
        self._config: BrokerConfig | None = None
        self._base = ConsumerSettings()
        self._latest = self._base
        """The last settings of a group without configs: every heartbeat asks several times."""

    def __call__(self, group_id: str) -> ConsumerSettings:
        """Return the settings of a group. Unless it sets its own, the heartbeat interval follows
        the number of members of all groups: with few of them, each may send heartbeats often, and
        so gets its partitions soon.
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
