"""Kohort: a Kafka-protocol broker, and a consumer for any Kafka. This package is the public face;
the others are its rooms.

Names are imported when they are first used, so that the command line does not pay for a consumer
that it does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

_HOMES: Final = {
    "Assignor": "client.core.assignors",
    "Consumer": "client.consumer",
    "ConsumerCollector": "client.metrics",
    "ConsumerConfig": "client.config",
    "ConsumerRecord": "client.records",
    "DeadLetter": "client.processing.dead_letters",
    "GroupMember": "client.core.assignors",
    "GroupMetadata": "client.consumer",
    "Health": "client.health",
    "JoinReason": "protocol.join_reason",
    "OffsetAndMetadata": "client.core.offsets",
    "OffsetAndTimestamp": "client.core.offsets",
    "PartitionInfo": "client.core.partition_info",
    "RebalanceListener": "client.listener",
    "RebalanceProtocol": "client.core.assignors",
    "TopicPartition": "client.core.partitions",
    "errors": "client.core.errors",
}


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(home)
    value: object = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


if TYPE_CHECKING:
    from client.config import ConsumerConfig as ConsumerConfig
    from client.consumer import Consumer as Consumer
    from client.consumer import GroupMetadata as GroupMetadata
    from client.core import errors as errors
    from client.core.assignors import Assignor as Assignor
    from client.core.assignors import GroupMember as GroupMember
    from client.core.assignors import RebalanceProtocol as RebalanceProtocol
    from client.core.offsets import OffsetAndMetadata as OffsetAndMetadata
    from client.core.offsets import OffsetAndTimestamp as OffsetAndTimestamp
    from client.core.partition_info import PartitionInfo as PartitionInfo
    from client.core.partitions import TopicPartition as TopicPartition
    from client.health import Health as Health
    from client.listener import RebalanceListener as RebalanceListener
    from client.metrics import ConsumerCollector as ConsumerCollector
    from client.processing.dead_letters import DeadLetter as DeadLetter
    from client.records import ConsumerRecord as ConsumerRecord
    from protocol.join_reason import JoinReason as JoinReason
