"""The response of the four delegation token APIs (KIP-48), which are not supported.

Delegation tokens relieve a Kerberos server, and are distributed among the brokers of a cluster;
neither exists here. A Kafka broker without `delegation.token.secret.key` answers alike.
"""

from kohort.broker.core.security.session import ANONYMOUS
from kohort.broker.dispatch.context import RequestContext
from kohort.protocol.errors import ErrorCode


def refusal(ctx: RequestContext) -> ErrorCode:
    """Return the reason why this client gets no tokens; authentication is checked first."""
    if ctx.session.principal == ANONYMOUS:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED


def expiry_ms(code: ErrorCode) -> int:
    """Return the expiry that Kafka puts beside this refusal: each is of another part of it."""
    return -1 if code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED else 0
