"""ListConfigResources (key 74): the resources that DescribeConfigs supports.

v0-1 as in Kafka 4.4: the topics that Metadata lists, this broker and its loggers, and groups that
have configs. There are no client-metrics subscriptions, the only resources that v0 lists.
"""

from kohort.broker.core.security import acls
from kohort.broker.core.security.acls import Operation
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.dispatch.registry import handles
from kohort.broker.handlers.shared.config_resources import ResourceType
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)


@handles(ListConfigResourcesRequest, versions="0-1")
def list_config_resources(
    ctx: RequestContext, request: ListConfigResourcesRequest
) -> ListConfigResourcesResponse:
    """List the resources of the requested types, of all types if none is given."""
    ctx.require(Operation.DESCRIBE_CONFIGS, acls.ResourceType.CLUSTER)
    if ctx.api_version == 0:
        return ListConfigResourcesResponse(error_code=ErrorCode.NONE, config_resources=[])
    every = set(ResourceType)
    wanted = set(request.resource_types) or every
    if not wanted <= every:
        return ListConfigResourcesResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, config_resources=[]
        )
    broker = str(ctx.broker.node_id)
    names = {
        ResourceType.BROKER_LOGGER: [broker],
        ResourceType.BROKER: [broker],
        ResourceType.TOPIC: [topic.name for topic in ctx.broker.topics.all() if topic.is_listed],
        ResourceType.GROUP: list(ctx.broker.topics.settings.groups),
    }
    return ListConfigResourcesResponse(
        error_code=ErrorCode.NONE,
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind, of_kind in names.items()
            if kind in wanted
            for name in of_kind
        ],
    )
