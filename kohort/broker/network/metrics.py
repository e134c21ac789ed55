"""What the edge tells about itself. Called on every request: must be fast and must not raise."""

from typing import Protocol


class NetworkMetrics(Protocol):
    """Implemented by `kohort.broker.metrics.requests.EdgeMetrics`.

    Reasons are from fixed lists, so they can be labels: those of connections that are closed are
    `kohort.broker.network.timeouts.CloseReason`, one that is refused names the config that says no.
    """

    def request_answered(
        self, api: str, version: int, response: object | None, duration_s: float
    ) -> None:
        """`response` is the message, or None where there is none, or none with errors.

        `duration_s` runs from the whole request to its answer, waiting included.
        """
        ...

    def request_failed(self, api: str, version: int, error_code: int, duration_s: float) -> None:
        """The request as a whole failed so, whatever the client is told of it."""
        ...

    def request_rejected(self, reason: str) -> None:
        """A request that has no answer but the end of its connection."""
        ...

    def request_waits(self) -> None:
        """A request could not be answered at once."""
        ...

    def request_waited(self) -> None:
        """It is answered now, or its client is gone."""
        ...

    def connection_opened(self) -> None: ...

    def connection_closed(self, reason: str) -> None: ...

    def connection_refused(self, reason: str) -> None: ...

    def bytes_received(self, byte_count: int) -> None: ...

    def bytes_sent(self, byte_count: int) -> None: ...
