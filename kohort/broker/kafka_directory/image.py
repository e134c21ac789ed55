"""The metadata of a one-node cluster, in Kafka's terms.

No I/O. Kafka stores the metadata as a sequence of records (`Replay` reads them, `records_of` writes
them); `kohort.broker.kafka_directory.own_metadata` converts a `ClusterImage` to Kohort's form.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

from kohort.broker.core.security.acls import InvalidRuleError, Rule, rule_of
from kohort.broker.core.security.sasl import Credential
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.protocol.messages.cluster_metadata import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    EntityData,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    RemoveUserScramCredentialRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    UserScramCredentialRecord,
)
from kohort.protocol.scram import Keys

TOPIC_CONFIGS: Final = 2
BROKER_CONFIGS: Final = 4
GROUP_CONFIGS: Final = 32
"""The resource types that have configs, with the protocol's numbers."""

NO_LEADER_CHANGE: Final = -2


MetadataRecord: TypeAlias = object

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(type, name) of each component; the name None means the default of the type."""


@dataclass(slots=True)
class PartitionImage:
    replicas: list[int]
    isr: list[int]
    leader: int
    leader_epoch: int
    directories: list[bytes] = field(default_factory=list)
    """Ids of the replicas' log directories; [] if unknown."""


@dataclass(slots=True)
class TopicImage:
    """A topic; its configs are in `ClusterImage.configs`."""

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionImage] = field(default_factory=dict)


@dataclass(slots=True)
class ClusterImage:
    topics: dict[bytes, TopicImage] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    """Configs by resource type and name; a broker's name is its id, or "" for all brokers."""
    credentials: dict[tuple[str, int], Credential] = field(default_factory=dict)
    """Credentials by user and mechanism: 1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    rules: dict[bytes, Rule] = field(default_factory=dict)
    """ACLs by Kafka's ACL id, which Kohort does not store."""
    quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)
    next_producer_id: int = 0
    brokers: set[int] = field(default_factory=set)
    """Ids of the brokers that are registered."""
    strange_rules: list[str] = field(default_factory=list)
    """For each ACL that cannot be converted, the reason."""

    def configs_of(self, kind: int, name: str) -> dict[str, str]:
        """Return the configs of a resource; {} if it has none."""
        return self.configs.get((kind, name), {})


class Replay:
    """Builds an image from records in log order. Raises ValueError if they are inconsistent, as
    when a log was not read from its start.
    """

    def __init__(self) -> None:
        self.image = ClusterImage()

    def apply(self, record: MetadataRecord) -> None:
        """Apply a record. Features are ignored: each broker has its own."""
        handle: Callable[[Replay, Any], None] | None = _HANDLERS.get(type(record))
        assert handle is not None, f"{type(record).__name__} is not a record of the log"
        handle(self, record)

    def _topic(self, record: TopicRecord) -> None:
        topic = TopicImage(record.name, record.topic_id)
        self.image.topics.setdefault(record.topic_id, topic)

    def _remove_topic(self, record: RemoveTopicRecord) -> None:
        topic = self._found(record.topic_id)
        del self.image.topics[record.topic_id]
        self.image.configs.pop((TOPIC_CONFIGS, topic.name), None)

    def _partition(self, record: PartitionRecord) -> None:
        self._found(record.topic_id).partitions[record.partition_id] = PartitionImage(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.directories,
        )

    def _change_partition(self, record: PartitionChangeRecord) -> None:
        partition = self._found(record.topic_id).partitions.get(record.partition_id)
        if partition is None:
            raise ValueError(f"a change of partition {record.partition_id}, which does not exist")
        if record.leader != NO_LEADER_CHANGE:
            partition.leader = record.leader
            partition.leader_epoch += 1
        if record.replicas is not None:
            partition.replicas = record.replicas
        if record.isr is not None:
            partition.isr = record.isr
        if record.directories is not None:
            partition.directories = record.directories

    def _config(self, record: ConfigRecord) -> None:
        key = record.resource_type, record.resource_name
        configs = self.image.configs.setdefault(key, {})
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value
        if not configs:
            del self.image.configs[key]

    def _credential(self, record: UserScramCredentialRecord) -> None:
        keys = Keys(record.stored_key, record.server_key)
        credential = Credential(record.salt, keys, record.iterations)
        self.image.credentials[record.name, record.mechanism] = credential

    def _remove_credential(self, record: RemoveUserScramCredentialRecord) -> None:
        self.image.credentials.pop((record.name, record.mechanism), None)

    def _rule(self, record: AccessControlEntryRecord) -> None:
        try:
            self.image.rules[record.id] = rule_of(
                record.resource_type,
                record.resource_name,
                record.pattern_type,
                record.principal,
                record.host,
                record.operation,
                record.permission_type,
            )
        except InvalidRuleError as error:
            self.image.strange_rules.append(str(error))

    def _remove_rule(self, record: RemoveAccessControlEntryRecord) -> None:
        self.image.rules.pop(record.id, None)

    def _quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple((part.entity_type, part.entity_name) for part in record.entity)
        limits = self.image.quotas.setdefault(entity, {})
        if record.remove:
            limits.pop(record.key, None)
        else:
            limits[record.key] = record.value
        if not limits:
            del self.image.quotas[entity]

    def _producer_ids(self, record: ProducerIdsRecord) -> None:
        self.image.next_producer_id = record.next_producer_id

    def _register(self, record: RegisterBrokerRecord) -> None:
        self.image.brokers.add(record.broker_id)

    def _unregister(self, record: UnregisterBrokerRecord) -> None:
        self.image.brokers.discard(record.broker_id)

    def _feature(self, record: FeatureLevelRecord) -> None:
        pass

    def _found(self, topic_id: bytes) -> TopicImage:
        topic = self.image.topics.get(topic_id)
        if topic is None:
            raise ValueError(f"a record of topic {topic_id.hex()}, which does not exist")
        return topic


_HANDLERS: Final[dict[type, Callable[[Replay, Any], None]]] = {
    TopicRecord: Replay._topic,  # noqa: SLF001 - the table of its own methods.
    RemoveTopicRecord: Replay._remove_topic,  # noqa: SLF001
    PartitionRecord: Replay._partition,  # noqa: SLF001
    PartitionChangeRecord: Replay._change_partition,  # noqa: SLF001
    ConfigRecord: Replay._config,  # noqa: SLF001
    UserScramCredentialRecord: Replay._credential,  # noqa: SLF001
    RemoveUserScramCredentialRecord: Replay._remove_credential,  # noqa: SLF001
    AccessControlEntryRecord: Replay._rule,  # noqa: SLF001
    RemoveAccessControlEntryRecord: Replay._remove_rule,  # noqa: SLF001
    ClientQuotaRecord: Replay._quota,  # noqa: SLF001
    ProducerIdsRecord: Replay._producer_ids,  # noqa: SLF001
    RegisterBrokerRecord: Replay._register,  # noqa: SLF001
    UnregisterBrokerRecord: Replay._unregister,  # noqa: SLF001
    FeatureLevelRecord: Replay._feature,  # noqa: SLF001
}


def records_of(image: ClusterImage, release: Release = KAFKA_4_4) -> Iterator[MetadataRecord]:
    """Return the initial records of a new cluster of this release; brokers register themselves."""
    for name, level in release.features.items():
        yield FeatureLevelRecord(name=name, feature_level=level)
    for topic in image.topics.values():
        yield TopicRecord(name=topic.name, topic_id=topic.topic_id)
        for index, partition in sorted(topic.partitions.items()):
            yield PartitionRecord(
                partition_id=index,
                topic_id=topic.topic_id,
                replicas=partition.replicas,
                isr=partition.isr,
                removing_replicas=[],
                adding_replicas=[],
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                partition_epoch=0,
                directories=partition.directories,
            )
    for (kind, name), configs in image.configs.items():
        for key, value in configs.items():
            yield ConfigRecord(resource_type=kind, resource_name=name, name=key, value=value)
    for (user, mechanism), credential in image.credentials.items():
        yield UserScramCredentialRecord(
            name=user,
            mechanism=mechanism,
            salt=credential.salt,
            stored_key=credential.keys.stored_key,
            server_key=credential.keys.server_key,
            iterations=credential.iterations,
        )
    for rule_id, rule in image.rules.items():
        yield AccessControlEntryRecord(
            id=rule_id,
            resource_type=rule.resource_type,
            resource_name=rule.resource_name,
            pattern_type=rule.pattern,
            principal=rule.principal,
            host=rule.host,
            operation=rule.operation,
            permission_type=rule.permission,
        )
    for entity, limits in image.quotas.items():
        parts = [EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        for key, limit in limits.items():
            yield ClientQuotaRecord(entity=parts, key=key, value=limit, remove=False)
    if image.next_producer_id > 0:
        yield ProducerIdsRecord(broker_id=-1, next_producer_id=image.next_producer_id)
