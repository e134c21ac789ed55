"""What can be asked and changed about the settings of topics and brokers, on any cluster."""

from collections.abc import Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from kohort.admin.cluster import Cluster, RefusedError
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
    """Types of resources that have settings, by their number in requests."""

    TOPIC = 2
    BROKER = 4


class Resource(NamedTuple):
    """A topic, or a broker by its id; a broker with an empty name stands for all of them."""

    kind: Kind
    name: str


class Source(IntEnum):
    """Where the value of a setting comes from, if it was set at run time."""

    TOPIC = 1
    BROKER = 2


class Operation(IntEnum):
    """What is done to a setting (KIP-339)."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def change(name: str, operation: Operation, value: str | None = None) -> AlterableConfig:
    """One change of a setting."""
    return AlterableConfig(name=name, config_operation=operation, value=value)


def described(
    cluster: Cluster,
    connection: BlockingConnection,
    resource: Resource,
    keys: Sequence[str] | None,
    what: str,
) -> Sequence[DescribeConfigsResourceResult]:
    """Settings that are in force, all of them without `keys`. Raises RefusedError of `what`,
    DisconnectedError.
    """
    asked = DescribeConfigsResource(
        resource_type=resource.kind,
        resource_name=resource.name,
        configuration_keys=None if keys is None else list(keys),
    )
    answer: DescribeConfigsResponse = cluster.ask(
        connection, DescribeConfigsRequest(resources=[asked])
    )
    result = answer.results[0]
    if result.error_code:
        raise RefusedError(result.error_code, what, result.error_message)
    return result.configs


def alter(
    cluster: Cluster,
    changes: Mapping[Resource, Sequence[AlterableConfig]],
    what: str,
    *,
    is_dry_run: bool = False,
) -> None:
    """Change settings; what is not named stays. Raises as `described`."""
    resources = [
        AlterConfigsResource(
            resource_type=resource.kind, resource_name=resource.name, configs=list(of_resource)
        )
        for resource, of_resource in changes.items()
    ]
    request = IncrementalAlterConfigsRequest(resources=resources, validate_only=is_dry_run)
    answer: IncrementalAlterConfigsResponse = cluster.ask(cluster.controller(), request)
    for one in answer.responses:
        if one.error_code:
            raise RefusedError(one.error_code, what, one.error_message)
