"""Records of __cluster_metadata: the state of a cluster in Kafka's controllers (KIP-631).

A value has the frame version 1, the record's type and the record's version (unsigned varints), then
the record; there are no keys. `RECORD_TYPES` has the types. Snapshots of the log are files of such
records between two control records, a header and a footer (KIP-630).

Records that do not affect a broker's disk are not declared: live brokers, finalised features,
migrations from ZooKeeper.

Partitions: v1 directories of replicas (KIP-858); v2 eligible leader replicas (KIP-966). Brokers: v1
controlled shutdown; v2 migration from ZooKeeper; v3 log directories (KIP-858); v4 cordoned ones
(KIP-1066).
"""

from typing import Final

from kohort.protocol.message import field, record, struct
from kohort.protocol.types import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int64,
    String,
    Uint16,
    Uuid,
)


@struct
class BrokerEndpoint:
    name: String
    host: String
    port: Uint16
    security_protocol: Int16


@struct
class BrokerFeature:
    name: String
    min_supported_version: Int16
    max_supported_version: Int16


@record(versions="0-4", flexible="0+")
class RegisterBrokerRecord:
    """A broker has started; it is part of the cluster until it is unregistered."""

    broker_id: Int32
    is_migrating_zk_broker: Bool = field(default=False, since=2)
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: list[BrokerEndpoint]
    features: list[BrokerFeature]
    rack: String | None
    fenced: Bool = field(default=True)
    in_controlled_shutdown: Bool = field(default=False, since=1)
    log_dirs: list[Uuid] = field(default=[], since=3, tag=0)
    cordoned_log_dirs: list[Uuid] | None = field(default=None, since=4, tag=1)


@record(versions="0", flexible="0+")
class UnregisterBrokerRecord:
    """A broker is no longer part of the cluster."""

    broker_id: Int32
    broker_epoch: Int64


@record(versions="0", flexible="0+")
class TopicRecord:
    """A topic; its partitions follow."""

    name: String
    topic_id: Uuid


@record(versions="0", flexible="0+")
class RemoveTopicRecord:
    """A topic is deleted, with its partitions and configs."""

    topic_id: Uuid


@record(versions="0-2", flexible="0+")
class PartitionRecord:
    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    replicas: list[Int32]
    """Ids of brokers, the preferred leader first."""
    isr: list[Int32]
    removing_replicas: list[Int32]
    adding_replicas: list[Int32]
    leader: Int32 = field(default=-1)
    leader_recovery_state: Int8 = field(default=0, tag=0)
    leader_epoch: Int32 = field(default=-1)
    partition_epoch: Int32 = field(default=-1)
    directories: list[Uuid] = field(default=[], since=1)
    """Directories of the replicas, in the same order."""
    eligible_leader_replicas: list[Int32] | None = field(default=None, since=2, tag=1)
    last_known_elr: list[Int32] | None = field(default=None, since=2, tag=2)


@record(versions="0-2", flexible="0+")
class PartitionChangeRecord:
    """Changes of a partition; null means unchanged."""

    partition_id: Int32 = field(default=-1)
    topic_id: Uuid
    isr: list[Int32] | None = field(default=None, tag=0)
    leader: Int32 = field(default=-2, tag=1)
    """-2 if unchanged. Any other value, even the same broker, begins the next leader epoch."""
    replicas: list[Int32] | None = field(default=None, tag=2)
    removing_replicas: list[Int32] | None = field(default=None, tag=3)
    adding_replicas: list[Int32] | None = field(default=None, tag=4)
    leader_recovery_state: Int8 = field(default=-1, tag=5)
    directories: list[Uuid] | None = field(default=None, since=1, tag=8)
    eligible_leader_replicas: list[Int32] | None = field(default=None, since=2, tag=6)
    last_known_elr: list[Int32] | None = field(default=None, since=2, tag=7)


@record(versions="0", flexible="0+")
class ConfigRecord:
    """A config of a topic, a broker, or anything else that has configs."""

    resource_type: Int8
    resource_name: String
    """Empty for all brokers."""
    name: String
    value: String | None
    """Null removes the config."""


@record(versions="0", flexible="0+")
class UserScramCredentialRecord:
    """The keys that verify a user's password (KIP-554)."""

    name: String
    mechanism: Int8
    """1 SCRAM-SHA-256, 2 SCRAM-SHA-512."""
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@record(versions="0", flexible="0+")
class RemoveUserScramCredentialRecord:
    name: String
    mechanism: Int8


@record(versions="0", flexible="0+")
class FeatureLevelRecord:
    name: String
    feature_level: Int16


@struct
class EntityData:
    """One part of the entity that a quota is for."""

    entity_type: String
    entity_name: String | None
    """Null for the default of the type."""


@record(versions="0", flexible="0+")
class ClientQuotaRecord:
    """A limit on clients (KIP-546)."""

    entity: list[EntityData]
    key: String
    value: Float64
    remove: Bool


@record(versions="0", flexible="0+")
class ProducerIdsRecord:
    """A block of producer ids was allocated to a broker (KIP-730)."""

    broker_id: Int32
    broker_epoch: Int64 = field(default=-1)
    next_producer_id: Int64
    """The first id of the next block."""


@record(versions="0", flexible="0+")
class AccessControlEntryRecord:
    """An access rule (KIP-801); its types are numbers, as in CreateAcls."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@record(versions="0", flexible="0+")
class RemoveAccessControlEntryRecord:
    id: Uuid


@record(versions="0", flexible="0+")
class SnapshotHeaderRecord:
    """The first record of a snapshot, in a control batch."""

    version: Int16
    last_contained_log_timestamp: Int64


@record(versions="0", flexible="0+")
class SnapshotFooterRecord:
    """The last record of a snapshot, in a control batch: without it the file is incomplete."""

    version: Int16


RECORD_TYPES: Final[dict[int, type]] = {
    0: RegisterBrokerRecord,
    1: UnregisterBrokerRecord,
    2: TopicRecord,
    3: PartitionRecord,
    4: ConfigRecord,
    5: PartitionChangeRecord,
    9: RemoveTopicRecord,
    11: UserScramCredentialRecord,
    12: FeatureLevelRecord,
    14: ClientQuotaRecord,
    15: ProducerIdsRecord,
    18: AccessControlEntryRecord,
    19: RemoveAccessControlEntryRecord,
    22: RemoveUserScramCredentialRecord,
}
"""The declared records, by type (Kafka's apiKey)."""
