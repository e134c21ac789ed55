"""A broker that kills itself at a point of the first transaction that ends.

python -m tests.crash.dying_broker POINT --override name=value ...
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any, Final, NoReturn

from kohort.broker.__main__ import main
from kohort.broker.core.transaction.records import DurableTransaction, TransactionRecord
from kohort.broker.transactions.log import TopicTransactionLog
from kohort.broker.transactions.markers import PartitionMarkers

POINTS: Final = ("decided", "some marked", "all marked", "complete")
"""Prepare* is in the log; one marker as well; all of them; Complete* as well."""


def _die() -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("dead")


def _die_at(point: str) -> None:
    append, write = TopicTransactionLog.append, PartitionMarkers.write

    def append_and_die(
        self: TopicTransactionLog, partition: int, record: DurableTransaction, *, wall_ms: int
    ) -> Any:  # noqa: ANN401 - what is appended is not awaited by the dead.
        is_prepared = isinstance(record, TransactionRecord) and record.state.is_prepared
        is_complete = (
            isinstance(record, TransactionRecord)
            and record.state.is_idle
            and record.state.code != 0  # Empty
        )
        if point == "all marked" and is_complete:
            _die()
        waiting = append(self, partition, record, wall_ms=wall_ms)
        if (point == "decided" and is_prepared) or (point == "complete" and is_complete):
            _die()
        return waiting

    def write_and_die(self: PartitionMarkers, *place: Any, **marker: Any) -> Any:  # noqa: ANN401
        written = write(self, *place, **marker)
        if point == "some marked":
            _die()
        return written

    TopicTransactionLog.append = append_and_die  # type: ignore[method-assign]
    PartitionMarkers.write = write_and_die  # type: ignore[method-assign]


if __name__ == "__main__":
    _die_at(sys.argv.pop(1))
    sys.exit(main())
