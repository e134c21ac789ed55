"""Describes and alters configs of topics and brokers."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kohort.admin.cluster import Cluster, check
from kohort.client.net.blocking import BlockingConnection
from kohort.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from kohort.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)


class Kind(IntEnum):
    """Types of resources with configs, by their number in the protocol."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


class Resource(NamedTuple):
    """A topic, or a broker by its id; an empty id means the cluster-wide defaults."""

    kind: Kind
    name: str


class Source(IntEnum):
    """Sources of values, by their number in DescribeConfigs."""

    TOPIC = 1
    BROKER = 2
    ALL_BROKERS = 3
    FILE = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class Operation(IntEnum):
    """Operations of IncrementalAlterConfigs (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def change(name: str, operation: Operation, value: str | None = None) -> AlterableConfig:
    return AlterableConfig(name=name, config_operation=operation, value=value)


def described(
    cluster: Cluster,
    connection: BlockingConnection,
    resource: Resource,
    keys: Sequence[str] | None,
    what: str,
) -> Sequence[DescribeConfigsResourceResult]:
    asked = DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    answer: DescribeConfigsResponse = cluster.ask(
        connection, DescribeConfigsRequest(resources=[asked])
    )
    result = answer.results[0]
    check(result.error_code, what, result.error_message)
    return result.configs


def alter(
    cluster: Cluster,
    changes: Mapping[Resource, Sequence[AlterableConfig]],
    what: str,
    *,
    is_dry_run: bool = False,
    broker: BlockingConnection | None = None,
) -> None:
    """Change the named configs of resources; their other configs are kept.

    Args:
        broker: the broker to send the request to, if it is not the controller.
    """
    resources = [
        AlterConfigsResource(
            resource_type=resource.kind, resource_name=resource.name, configs=list(configs)
        )
        for resource, configs in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=is_dry_run)
    answer: IncrementalAlterConfigsResponse = cluster.ask(broker or cluster.controller(), request)
    for response in answer.responses:
        check(response.error_code, what, response.error_message)
