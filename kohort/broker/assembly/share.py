"""Builds the ShareFetch and ShareAcknowledge services; imported at the first share group."""

from collections.abc import Iterator

from kohort.broker.coordinator.host import GroupHost
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.background_tasks import BackgroundTasks
from kohort.broker.runtime.clock import Clock
from kohort.broker.share.counts import ShareCounts
from kohort.broker.share.dead_letters import DeadLetterQueue
from kohort.broker.share.delivery import ShareDelivery
from kohort.broker.share.fetch import ShareReader
from kohort.broker.share.maintenance import InitializedGroup, Maintenance
from kohort.broker.share.partitions import SharePartitions
from kohort.broker.share.settings import ShareSettings
from kohort.broker.share.state_topic import StateTopic
from kohort.broker.topics.internal_log import InternalLog
from kohort.broker.topics.manager import TopicManager
from kohort.broker.topics.names import SHARE_GROUP_STATE, internal_topic_configs
from kohort.broker.topics.partition import Partition
from kohort.groups.share.membership import ShareMembership


def make_share_delivery(
    topics: TopicManager, purgatory: Purgatory, clock: Clock, background_tasks: BackgroundTasks
) -> ShareDelivery:
    """Create the ShareFetch and ShareAcknowledge services; does not load __share_group_state."""
    settings = topics.settings
    config = settings.config
    log = InternalLog(
        topics,
        SHARE_GROUP_STATE,
        partition_count=config.share_coordinator_state_topic_num_partitions,
        configs=internal_topic_configs(SHARE_GROUP_STATE, config),
    )
    topic = StateTopic(log, clock)

    def find(topic_id: bytes, number: int) -> Partition | None:
        found = topics.get_by_id(topic_id)
        if found is None or not 0 <= number < len(found.partitions):
            return None
        return found.partitions[number]

    group_settings = ShareSettings(lambda: settings)
    dead_letters = DeadLetterQueue(topics, group_settings, clock)
    partitions = SharePartitions(
        topic,
        find=find,
        settings=group_settings,
        updates_per_snapshot=lambda: (
            settings.config.share_coordinator_snapshot_update_records_per_snapshot
        ),
        dead_letters=dead_letters,
        counts=ShareCounts(config.kohort_metrics_groups_max),
        purgatory=purgatory,
        clock=clock,
    )
    reader = ShareReader(partitions, purgatory, clock)
    maintenance = Maintenance(partitions, topic, lambda: settings.config, clock, background_tasks)
    return ShareDelivery(
        reader,
        topic,
        maintenance,
        dead_letters,
        max_sessions=config.group_share_max_share_sessions,
    )


def initialized_groups(host: GroupHost) -> Iterator[InitializedGroup]:
    """Yield the share groups that the coordinator has loaded."""
    for group in list(host.groups()):
        membership = group.membership
        if isinstance(membership, ShareMembership):
            yield InitializedGroup(
                group.group_id, membership.data.state.epoch, membership.initialized
            )
