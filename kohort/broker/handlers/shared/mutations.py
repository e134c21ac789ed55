"""The quota for topic mutations of a request (KIP-599).

A client that understands THROTTLING_QUOTA_EXCEEDED is refused while its quota is exceeded; all
others are served, and throttled afterwards.
"""

from kohort.broker.dispatch.context import RequestContext
from kohort.protocol.errors import ErrorCode, KafkaError


class Mutations:
    """The partitions that one request creates or deletes."""

    def __init__(self, ctx: RequestContext, *, is_strict: bool) -> None:
        """`is_strict`: whether the client can be refused."""
        limits = ctx.broker.quotas
        self._quotas = None if limits is None or not limits.is_limiting else limits.quotas
        self._clock = ctx.broker.clock
        self._client = ctx.session.principal.name, ctx.header.client_id or ""
        self._is_strict = is_strict
        self.throttle_ms = 0
        """How long to throttle the client; the dispatcher acts on the value in the response."""

    def take(self, partitions: int) -> None:
        """Charge the quota for a change.

        Raises:
            KafkaError: the quota is exceeded, and the change must not be made.
        """
        if self._quotas is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._is_strict:
            self.throttle_ms = self._quotas.take_mutations(*self._client, 0, now_ms)
            if self.throttle_ms:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        debt_ms = self._quotas.take_mutations(*self._client, partitions, now_ms)
        if not self._is_strict:
            self.throttle_ms = debt_ms
