"""The request handlers: one module per API, or for several APIs that share most of their code.

A handler validates, resolves names and ids, delegates, and maps errors to codes. The rules about
groups, logs and topics belong to the services in
:class:`kohort.broker.dispatch.context.BrokerServices`. See :mod:`kohort.broker.dispatch.registry`
for how a handler is registered.
"""

import importlib
from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple

from kohort.broker.dispatch.registry import Api, registered
from kohort.protocol.schema import VersionRange


class Served(NamedTuple):
    """Description of an API, for use before the module of its handler is imported."""

    name: str
    advertised: str
    """Version range in the ApiVersions response, such as "0-13"."""
    module: str
    is_coordinated: bool = False
    """Whether the API needs the coordinators of groups or transactions."""

    def load(self, key: int) -> Api:
        """Import the handler's module, and return the API that it registers."""
        importlib.import_module(f"{__name__}.{self.module}")
        api = registered(key)
        assert api is not None, f"{self.module} has no handler of {self.name}"
        assert (api.name, api.advertised) == (self.name, VersionRange.parse(self.advertised))
        return api


SERVED: Final = {
    0: Served("Produce", "0-13", "produce"),
    1: Served("Fetch", "4-18", "fetch"),
    2: Served("ListOffsets", "1-11", "list_offsets"),
    3: Served("Metadata", "0-13", "metadata"),
    8: Served("OffsetCommit", "2-10", "offset_commit", is_coordinated=True),
    9: Served("OffsetFetch", "1-10", "offset_fetch", is_coordinated=True),
    10: Served("FindCoordinator", "0-6", "find_coordinator", is_coordinated=True),
    11: Served("JoinGroup", "0-9", "classic_groups", is_coordinated=True),
    12: Served("Heartbeat", "0-4", "classic_groups", is_coordinated=True),
    13: Served("LeaveGroup", "0-5", "classic_groups", is_coordinated=True),
    14: Served("SyncGroup", "0-5", "classic_groups", is_coordinated=True),
    15: Served("DescribeGroups", "0-6", "groups", is_coordinated=True),
    16: Served("ListGroups", "0-5", "groups", is_coordinated=True),
    17: Served("SaslHandshake", "0-1", "sasl"),
    18: Served("ApiVersions", "0-5", "api_versions"),
    19: Served("CreateTopics", "2-7", "create_topics"),
    20: Served("DeleteTopics", "1-6", "delete_topics"),
    21: Served("DeleteRecords", "0-2", "delete_records"),
    22: Served("InitProducerId", "0-5", "transactions", is_coordinated=True),
    23: Served("OffsetForLeaderEpoch", "2-4", "list_offsets"),
    24: Served("AddPartitionsToTxn", "0-5", "transactions", is_coordinated=True),
    25: Served("AddOffsetsToTxn", "0-4", "transactions", is_coordinated=True),
    26: Served("EndTxn", "0-5", "transactions", is_coordinated=True),
    27: Served("WriteTxnMarkers", "1-2", "write_txn_markers", is_coordinated=True),
    28: Served("TxnOffsetCommit", "0-6", "txn_offset_commit", is_coordinated=True),
    29: Served("DescribeAcls", "1-3", "acls"),
    30: Served("CreateAcls", "1-3", "acls"),
    31: Served("DeleteAcls", "1-3", "acls"),
    32: Served("DescribeConfigs", "1-4", "describe_configs"),
    33: Served("AlterConfigs", "0-2", "alter_configs"),
    34: Served("AlterReplicaLogDirs", "1-2", "log_dirs"),
    35: Served("DescribeLogDirs", "1-5", "log_dirs"),
    36: Served("SaslAuthenticate", "0-2", "sasl"),
    37: Served("CreatePartitions", "0-3", "create_topics"),
    38: Served("CreateDelegationToken", "1-3", "delegation_tokens"),
    39: Served("RenewDelegationToken", "1-2", "delegation_tokens"),
    40: Served("ExpireDelegationToken", "1-2", "delegation_tokens"),
    41: Served("DescribeDelegationToken", "1-3", "delegation_tokens"),
    42: Served("DeleteGroups", "0-3", "groups", is_coordinated=True),
    43: Served("ElectLeaders", "0-2", "replicas"),
    44: Served("IncrementalAlterConfigs", "0-1", "alter_configs"),
    45: Served("AlterPartitionReassignments", "0-1", "replicas"),
    46: Served("ListPartitionReassignments", "0", "replicas"),
    47: Served("OffsetDelete", "0", "offset_commit", is_coordinated=True),
    48: Served("DescribeClientQuotas", "0-1", "client_quotas"),
    49: Served("AlterClientQuotas", "0-1", "client_quotas"),
    50: Served("DescribeUserScramCredentials", "0", "scram_credentials"),
    51: Served("AlterUserScramCredentials", "0", "scram_credentials"),
    55: Served("DescribeQuorum", "0-2", "cluster"),
    57: Served("UpdateFeatures", "0-2", "cluster"),
    60: Served("DescribeCluster", "0-2", "cluster"),
    61: Served("DescribeProducers", "0", "transaction_listing"),
    65: Served("DescribeTransactions", "0", "transaction_listing", is_coordinated=True),
    66: Served("ListTransactions", "0-2", "transaction_listing", is_coordinated=True),
    68: Served("ConsumerGroupHeartbeat", "0-1", "consumer_groups", is_coordinated=True),
    69: Served("ConsumerGroupDescribe", "0-1", "consumer_groups", is_coordinated=True),
    74: Served("ListConfigResources", "0-1", "alter_configs"),
    75: Served("DescribeTopicPartitions", "0", "describe_topic_partitions"),
    76: Served("ShareGroupHeartbeat", "1", "share_groups", is_coordinated=True),
    77: Served("ShareGroupDescribe", "1", "share_groups", is_coordinated=True),
    78: Served("ShareFetch", "1-2", "share_fetch", is_coordinated=True),
    79: Served("ShareAcknowledge", "1-2", "share_acknowledge", is_coordinated=True),
    90: Served("DescribeShareGroupOffsets", "0-1", "share_group_offsets", is_coordinated=True),
    91: Served("AlterShareGroupOffsets", "0", "share_group_offsets", is_coordinated=True),
    92: Served("DeleteShareGroupOffsets", "0", "share_group_offsets", is_coordinated=True),
}
"""The APIs by key, in key order."""


class Handlers(Mapping[int, Api]):
    """The APIs by key; a handler's module is imported when its API is first looked up.

    Importing all of them takes a tenth of the time that a broker takes to start.
    """

    def __getitem__(self, key: int) -> Api:
        return registered(key) or SERVED[key].load(key)

    def __contains__(self, key: object) -> bool:
        return key in SERVED

    def __iter__(self) -> Iterator[int]:
        return iter(SERVED)

    def __len__(self) -> int:
        return len(SERVED)


def load_handlers() -> dict[int, Api]:
    """Import every handler module and return the APIs by key, in key order."""
    return dict(Handlers())
