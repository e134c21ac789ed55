"""The metrics of the network layer, updated for every request: must be fast and must not raise.
Plain counters are attributes, to save calls.
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
    """Number of parked requests."""

    def request_answered(
        self, api: str, version: int, response: object | None, duration_s: float
    ) -> None:
        """Record a response.

        Args:
            response: the message; None if there is none, or it cannot contain errors.
            duration_s: time from the complete request to its response, including waiting.
        """
        ...

    def request_failed(self, api: str, version: int, error_code: int, duration_s: float) -> None:
        """Record a request that failed as a whole, even if it expects no response."""
        ...

    def request_rejected(self, reason: str) -> None:
        """Record a request whose only response was to close the connection."""
        ...

    def connection_opened(self) -> None: ...

    def connection_closed(self, reason: str) -> None: ...

    def connection_refused(self, reason: str) -> None: ...
