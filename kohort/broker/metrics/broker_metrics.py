"""The meters of one broker. Does not import prometheus-client."""

from functools import cached_property
from typing import TYPE_CHECKING

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.metrics.stalls import GcPauseMeter, LoopLagMeter

if TYPE_CHECKING:
    from kohort.broker.metrics.transactions import TransactionMetrics


class BrokerMetrics:
    """The meters of requests, connections, event loop, garbage collector and transactions."""

    def __init__(self) -> None:
        self.edge = EdgeMetrics()
        self.loop_lag = LoopLagMeter()
        self.gc_pauses = GcPauseMeter()

    @cached_property
    def transactions(self) -> "TransactionMetrics":
        from kohort.broker.metrics.transactions import TransactionMetrics  # noqa: PLC0415 - not for a start.

        return TransactionMetrics()

    def start(self) -> None:
        """Start the meters that have timers or callbacks. Call this on the event loop to be
        measured.
        """
        self.loop_lag.start()
        self.gc_pauses.start()

    def stop(self) -> None:
        self.loop_lag.stop()
        self.gc_pauses.stop()
