"""The metrics of the network layer. Called for every request: must be fast and must not raise. What
is only added up is counted here, without a call.
"""

from typing import Protocol


class NetworkMetrics(Protocol):
    """Implemented by `kohort.broker.metrics.requests.EdgeMetrics`.

    Reasons are from fixed sets, so they can be labels: `kohort.broker.network.timeouts.CloseReason`
    for closed connections, the name of the limiting config for refused ones.
    """

    received_bytes: int
    sent_bytes: int
    waiting_count: int
    """Requests that are parked."""

    def request_answered(
        self, api: str, version: int, response: object | None, duration_s: float
    ) -> None:
        """Record a response. `response` is the message, or None if there is none, or none with
        errors.

        `duration_s` is the time from the complete request to its response, waiting included.
        """
        ...

    def request_failed(self, api: str, version: int, error_code: int, duration_s: float) -> None:
        """Record that the request as a whole failed, whatever the client is told."""
        ...

    def request_rejected(self, reason: str) -> None:
        """Record a request that was answered only by closing its connection."""
        ...

    def connection_opened(self) -> None: ...

    def connection_closed(self, reason: str) -> None: ...

    def connection_refused(self, reason: str) -> None: ...
