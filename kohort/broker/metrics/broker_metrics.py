"""The meters of one broker. Light: no prometheus-client."""

from typing import Final

from kohort.broker.metrics.requests import EdgeMetrics
from kohort.broker.metrics.stalls import GcPauseMeter, LoopLagMeter
from kohort.broker.metrics.tally import HistogramTally
from kohort.protocol.records.control import ControlType

TRANSACTION_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Bounds of the buckets, in seconds: 60 is the usual transaction timeout, 900 the default of the
longest allowed one."""

RESULTS: Final = {ControlType.COMMIT: "commit", ControlType.ABORT: "abort"}


class TransactionMetrics:
    """Counts durations since the start, as an observer of the transactions; `TransactionHost` has
    the other counters.
    """

    def __init__(self) -> None:
        self.durations: Final = {result: HistogramTally(TRANSACTION_BOUNDS_S) for result in RESULTS}

    def on_transaction_ended(self, result: ControlType, duration_ms: int) -> None:
        """Count a transaction whose markers have all been written."""
        self.durations[result].observe(duration_ms / 1_000)


class BrokerMetrics:
    """Meters that count while the broker runs."""

    def __init__(self) -> None:
        self.edge = EdgeMetrics()
        self.transactions = TransactionMetrics()
        self.loop_lag = LoopLagMeter()
        self.gc_pauses = GcPauseMeter()

    def start(self) -> None:
        """Start the meters with timers or callbacks. Call it on the event loop to be measured."""
        self.loop_lag.start()
        self.gc_pauses.start()

    def stop(self) -> None:
        self.loop_lag.stop()
        self.gc_pauses.stop()
