"""The classes of all messages that tests send or expect.

A class whose name several modules have is imported from its own.
"""

from kohort.protocol.messages.acls import *  # noqa: F403
from kohort.protocol.messages.add_offsets_to_txn import *  # noqa: F403
from kohort.protocol.messages.add_partitions_to_txn import *  # noqa: F403
from kohort.protocol.messages.alter_configs import *  # noqa: F403
from kohort.protocol.messages.api_versions import *  # noqa: F403
from kohort.protocol.messages.client_quotas import *  # noqa: F403
from kohort.protocol.messages.cluster import *  # noqa: F403
from kohort.protocol.messages.cluster_metadata import *  # type: ignore[assignment]  # noqa: F403
from kohort.protocol.messages.consumer_protocol import *  # noqa: F403
from kohort.protocol.messages.delegation_tokens import *  # noqa: F403
from kohort.protocol.messages.describe_configs import *  # noqa: F403
from kohort.protocol.messages.describe_topic_partitions import *  # noqa: F403
from kohort.protocol.messages.end_txn import *  # noqa: F403
from kohort.protocol.messages.fetch import *  # type: ignore[assignment]  # noqa: F403
from kohort.protocol.messages.find_coordinator import *  # noqa: F403
from kohort.protocol.messages.groups import *  # noqa: F403
from kohort.protocol.messages.incremental_alter_configs import *  # type: ignore[assignment]  # noqa: F403
from kohort.protocol.messages.init_producer_id import *  # noqa: F403
from kohort.protocol.messages.list_config_resources import *  # noqa: F403
from kohort.protocol.messages.list_offsets import *  # noqa: F403
from kohort.protocol.messages.log_dirs import *  # noqa: F403
from kohort.protocol.messages.membership import *  # noqa: F403
from kohort.protocol.messages.metadata import *  # noqa: F403
from kohort.protocol.messages.offset_commit import *  # noqa: F403
from kohort.protocol.messages.offset_delete import *  # noqa: F403
from kohort.protocol.messages.offset_fetch import *  # noqa: F403
from kohort.protocol.messages.offset_for_leader_epoch import *  # type: ignore[assignment]  # noqa: F403
from kohort.protocol.messages.offsets_topic import *  # noqa: F403
from kohort.protocol.messages.produce import *  # noqa: F403
from kohort.protocol.messages.replicas import *  # noqa: F403
from kohort.protocol.messages.sasl import *  # noqa: F403
from kohort.protocol.messages.scram_credentials import *  # noqa: F403
from kohort.protocol.messages.topic_changes import *  # noqa: F403
from kohort.protocol.messages.transaction_log import *  # noqa: F403
from kohort.protocol.messages.transactions import *  # type: ignore[assignment]  # noqa: F403
from kohort.protocol.messages.txn_offset_commit import *  # noqa: F403
