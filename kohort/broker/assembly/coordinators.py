"""Builds the coordinators of groups and of transactions, and the rebalance history, from the
settings. :mod:`kohort.broker.assembly.deferred_coordinators` imports this module at the first
request of a group or a transaction; at the start if there is stored state.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from functools import cache
from typing import TYPE_CHECKING

from kohort.broker.config import BrokerConfig
from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator
from kohort.broker.coordinator.host import GroupHost, GroupObserver
from kohort.broker.coordinator.offsets_log import TopicOffsetsLog
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.core.transaction.requests import TransactionConfig
from kohort.broker.environment import Environment
from kohort.broker.history.history import HistoryLimits, RebalanceHistory
from kohort.broker.history.topic import TopicHistoryLog
from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import SHARE_GROUP_STATE, TRANSACTION_STATE, internal_topic_configs
from kohort.broker.topics.partition import Partition
from kohort.broker.topics.startup_progress import StartupProgress
from kohort.broker.transactions.host import TransactionHost, TransactionsConfig
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.broker.transactions.reconciling import find_epochs, find_open
from kohort.broker.transactions.transactions import Transactions
from kohort.groups.config import GroupConfig
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.membership import Membership
from kohort.protocol.records.control import ControlType

if TYPE_CHECKING:
    from kohort.broker.assembly.memberships import Memberships
    from kohort.broker.share.delivery import ShareDelivery


class Coordinators:
    """Creates, loads and stops the coordinators of groups and transactions, and the history."""

    def __init__(
        self,
        config: BrokerConfig,
        environment: Environment,
        topics: TopicManager,
        purgatory: Purgatory,
        background_tasks: BackgroundTasks,
        executor: Executor,
        history: RebalanceHistory,
        on_transaction_ended: Callable[[ControlType, int], None],
    ) -> None:
        self._topics = topics
        self._executor = executor
        self._purgatory = purgatory
        self._clock = environment.clock
        self._background_tasks = background_tasks
        self._share: ShareDelivery | None = None
        self._is_loading = False
        self._history_log = TopicHistoryLog(topics, config, executor)
        self.metrics = RebalanceMetrics(config.kohort_metrics_groups_max)
        self.history = history
        self.history.add_listener(self.metrics.on_record)
        self.groups = make_groups(
            config,
            environment,
            topics,
            purgatory,
            (self.metrics, self.history),
            background_tasks,
            lambda: self.share,
        )
        self.history.answer_slices = self.groups.host.answer_slices
        self.transactions = make_transactions(
            config, environment.clock, topics, self.groups, purgatory, background_tasks
        )
        self.transactions.host.counts.on_ended = on_transaction_ended

    def present_share(self) -> "ShareDelivery | None":
        """Like `share`, but None if it has not been created yet."""
        return self._share

    @property
    def share(self) -> "ShareDelivery":
        """The share group delivery (ShareFetch, ShareAcknowledge); created on first access."""
        if self._share is None:
            # Imported here, because most brokers have no share groups.
            from kohort.broker.assembly.share import make_share_delivery  # noqa: PLC0415

            self._share = make_share_delivery(
                self._topics, self._purgatory, self._clock, self._background_tasks
            )
            self.groups.host.add_observer(self._share.partitions)
            if not self._is_loading:
                self._share.maintenance.begin()
        return self._share

    async def load(self, startup: StartupProgress) -> None:
        """Load the stored state, and start the background tasks."""
        startup.phase = "loading the rebalance history"
        # Loaded before the groups, whose new records continue the stored sequence numbers.
        await self.history.start(self._history_log, self._executor)
        startup.phase = "loading groups"
        self._is_loading = True
        await self.groups.host.start()
        await self._load_share_groups()
        self._is_loading = False
        startup.phase = "loading transactions"
        await self._load_transactions()
        self.history.end_recovery()

    async def _load_share_groups(self) -> None:
        """Load the state of share-partitions, if any is stored or a share group was loaded."""
        if self._share is None and self._topics.get(SHARE_GROUP_STATE) is None:
            return
        from kohort.broker.assembly.share import initialized_groups  # noqa: PLC0415

        await self.share.maintenance.load(initialized_groups(self.groups.host))
        self.share.maintenance.begin()

    async def _load_transactions(self) -> None:
        """Load the transactional ids, and complete transactions whose outcome is stored but whose
        markers may be missing.
        """
        # Only an unclean stop may have lost records of the transactions. Then all partitions are
        # open by now, and are searched for open transactions and producer epochs.
        disk = self._topics.disk

        def opened() -> list[Partition]:
            return [] if disk.data.was_clean else list(disk.opened())

        await self.transactions.host.start(
            lambda: find_open(opened()), lambda: find_epochs(opened())
        )

    def begin(self) -> None:
        """Start the background tasks; to be called instead of `load` if no state is stored."""
        self.history.begin(self._history_log, self._executor)
        self.groups.host.begin()
        self.transactions.host.begin()
        self.history.end_recovery()

    async def stop_serving(self) -> None:
        """Answer the pending requests with NOT_COORDINATOR."""
        await self.transactions.host.close()
        await self.groups.host.close()
        if self._share is not None:
            await self._share.close()

    async def close(self) -> None:
        await self.stop_serving()
        await self.history.close()


def make_history(
    config: BrokerConfig, clock: Clock, background_tasks: BackgroundTasks
) -> RebalanceHistory:
    """Return the rebalance history, not started yet."""
    limits = HistoryLimits(
        size=config.kohort_rebalance_history_size,
        memory_bytes=config.kohort_rebalance_history_memory_bytes,
        removed_retention_ms=config.kohort_rebalance_history_retention_ms,
    )
    return RebalanceHistory(limits, clock, background_tasks)


def make_groups(
    config: BrokerConfig,
    environment: Environment,
    topics: TopicManager,
    purgatory: Purgatory,
    observers: Sequence[GroupObserver],
    background_tasks: BackgroundTasks,
    begin_sharing: Callable[[], object],
) -> GroupCoordinator:
    """Return the group coordinator; its log is not loaded yet. `begin_sharing` is called before a
    share group is created.
    """

    def topic_id(name: str) -> bytes | None:
        topic = topics.get(name)
        return None if topic is None else topic.topic_id

    @cache
    def memberships() -> "Memberships":
        # These imports take 13 ms and 1.2 MiB, which a broker without groups does not need.
        from kohort.broker.assembly.memberships import Memberships  # noqa: PLC0415

        return Memberships(config, environment, topics)

    def share(group: Group) -> Membership:
        begin_sharing()
        return memberships().share(group)

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
            GroupKind.CLASSIC: lambda group: memberships().classic(group),
            GroupKind.CONSUMER: lambda group: memberships().consumer(group),
            GroupKind.SHARE: share,
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
        log=log,
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
