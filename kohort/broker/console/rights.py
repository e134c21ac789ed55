"""Rights beyond those that all pages of the console need."""

from kohort.broker.console.source import ConsoleSource
from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.http.messages import HttpRequest


def may(
    source: ConsoleSource,
    request: HttpRequest,
    operation: Operation,
    kind: ResourceType,
    name: str,
) -> bool:
    """Whether the requester may do what a client with its rights may do; a denial is logged.

    Without authentication on this port, the requester has the rights of an anonymous client.
    """
    if request.requester is None:
        return source.is_open_to_anonymous
    return request.requester.may(operation, kind, name)
