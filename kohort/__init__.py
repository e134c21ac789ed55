"""Kohort: a Kafka-protocol broker, and a consumer for any Kafka. This package has the public names;
its subpackages implement them.

Names are imported when they are first used, so that the command line does not import a consumer
that it does not need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Final

_HOMES: Final = {
    "Assignor": "kohort.client.core.group.assignors",
    "ClientCredentials": "kohort.client.net.client_credentials",
    "Consumer": "kohort.client.consumer.consumer",
    "ConsumerCollector": "kohort.client.consumer.metrics",
    "ConsumerConfig": "kohort.client.config",
    "ConsumerRecord": "kohort.client.core.records",
    "DeadLetter": "kohort.client.processing.dead_letters",
    "GroupMember": "kohort.client.core.group.assignors",
    "GroupMetadata": "kohort.client.core.group.identity",
    "Health": "kohort.client.consumer.health",
    "JoinReason": "kohort.protocol.join_reason",
    "OAuthToken": "kohort.client.net.oauth",
    "OffsetAndMetadata": "kohort.client.core.offsets",
    "OffsetAndTimestamp": "kohort.client.core.offsets",
    "PartitionInfo": "kohort.client.core.partitions",
    "RebalanceListener": "kohort.client.group.listener",
    "RebalanceProtocol": "kohort.client.core.group.assignors",
    "TokenFile": "kohort.client.net.client_credentials",
    "TopicPartition": "kohort.client.core.partitions",
    "errors": "kohort.client.core.errors",
}

__all__ = sorted(_HOMES)  # noqa: PLE0605 - type checkers use the imports below.


def __getattr__(name: str) -> object:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module = importlib.import_module(home)
    value: object = module if name == "errors" else getattr(module, name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return __all__


if TYPE_CHECKING:
    from kohort.client.config import ConsumerConfig as ConsumerConfig
    from kohort.client.consumer.consumer import Consumer as Consumer
    from kohort.client.consumer.health import Health as Health
    from kohort.client.consumer.metrics import ConsumerCollector as ConsumerCollector
    from kohort.client.core import errors as errors
    from kohort.client.core.group.assignors import Assignor as Assignor
    from kohort.client.core.group.assignors import GroupMember as GroupMember
    from kohort.client.core.group.assignors import RebalanceProtocol as RebalanceProtocol
    from kohort.client.core.group.identity import GroupMetadata as GroupMetadata
    from kohort.client.core.offsets import OffsetAndMetadata as OffsetAndMetadata
    from kohort.client.core.offsets import OffsetAndTimestamp as OffsetAndTimestamp
    from kohort.client.core.partitions import PartitionInfo as PartitionInfo
    from kohort.client.core.partitions import TopicPartition as TopicPartition
    from kohort.client.core.records import ConsumerRecord as ConsumerRecord
    from kohort.client.group.listener import RebalanceListener as RebalanceListener
    from kohort.client.net.client_credentials import ClientCredentials as ClientCredentials
    from kohort.client.net.client_credentials import TokenFile as TokenFile
    from kohort.client.net.oauth import OAuthToken as OAuthToken
    from kohort.client.processing.dead_letters import DeadLetter as DeadLetter
    from kohort.protocol.join_reason import JoinReason as JoinReason
