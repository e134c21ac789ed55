"""Authorization of requests that name topics, or from some version on use their ids."""

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.topics.topic import Topic


def may_use(
    ctx: RequestContext, operation: Operation, topic: Topic | None, name: str, *, by_id: bool
) -> bool:
    """Return whether the principal may use a topic; `topic` is None if it does not exist.

    An unknown id is allowed: it has no name that could be denied, and is answered UNKNOWN_TOPIC_ID.
    """
    if topic is not None:
        return ctx.may(operation, ResourceType.TOPIC, topic.name)
    return by_id or ctx.may(operation, ResourceType.TOPIC, name)
