"""Counts transactions by duration. Imported at the first transaction or scrape."""

from typing import Final

from kohort.broker.metrics.tally import HistogramTally
from kohort.protocol.records.control import ControlType

TRANSACTION_BOUNDS_S: Final = (0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0)
"""Bounds of the buckets, in seconds: 60 is the usual transaction timeout, 900 the default of
`transaction.max.timeout.ms`."""

RESULTS: Final = {ControlType.COMMIT: "commit", ControlType.ABORT: "abort"}


class TransactionMetrics:
    """Observes the transactions and counts them by result and duration; `TransactionHost` has the
    other counters.
    """

    def __init__(self) -> None:
        self.durations: Final = {result: HistogramTally(TRANSACTION_BOUNDS_S) for result in RESULTS}

    def on_transaction_ended(self, result: ControlType, duration_ms: int) -> None:
        """Count a transaction whose markers have all been written."""
        self.durations[result].observe(duration_ms / 1_000)
