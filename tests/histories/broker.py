"""Kohort as the histories need it: with a wall clock that can be stepped, and faults planted.

A clock in a file of eight bytes is ahead of the machine's by so many milliseconds, for all brokers
that are forked here. A planted fault is what shows that the checker is not blind: each is one that
a broker might have, and a run against it must not be without anomalies.
"""

import argparse
import mmap
import struct
import time
from collections.abc import Callable
from functools import partial
from itertools import count
from pathlib import Path
from typing import Final

from kohort.broker.coordinator.coordinator import GroupCoordinator
from kohort.broker.core.partition.producers import ProducerState
from kohort.broker.runtime.clock import SystemClock
from kohort.broker.runtime.deferred import Deferred
from kohort.broker.storage.log.transactions import AbortedSearch, AbortedTransactions
from kohort.broker.topics.partition import Partition
from kohort.broker.transactions.markers import PartitionMarkers
from kohort.protocol.errors import ErrorCode
from kohort.protocol.records.batch import BatchHeader
from kohort.protocol.records.control import ControlType
from tests.support.brokers.forking import serve

_AHEAD: Final = struct.Struct("<q")


class SteppedClock:
    """The file, for the one who steps."""

    def __init__(self, file: Path) -> None:
        self.file = file
        file.write_bytes(_AHEAD.pack(0))

    def set_ahead(self, ms: int) -> None:
        """Negative is behind."""
        with self.file.open("r+b") as clock:
            clock.write(_AHEAD.pack(ms))


def _follow(file: Path) -> None:
    with file.open("rb") as opened:
        clock = mmap.mmap(opened.fileno(), _AHEAD.size, prot=mmap.PROT_READ)

    def wall_ms(self: SystemClock) -> int:
        (ahead_ms,) = _AHEAD.unpack_from(clock)
        return int(time.time_ns() // 1_000_000 + ahead_ms)

    SystemClock.wall_ms = wall_ms  # type: ignore[method-assign]


def _change_markers(change: Callable[[ControlType], ControlType | None]) -> None:
    """In one partition of each topic markers say something else, or are not written."""
    write = PartitionMarkers.write

    def changed(
        self: PartitionMarkers,
        topic: str,
        partition: int,
        producer_id: int,
        producer_epoch: int,
        result: ControlType,
        **terms: int,
    ) -> Deferred[ErrorCode] | ErrorCode:
        told = change(result) if partition == 1 and not topic.startswith("__") else result
        if told is None:
            return ErrorCode.NONE
        return write(self, topic, partition, producer_id, producer_epoch, told, **terms)

    PartitionMarkers.write = changed  # type: ignore[method-assign]


def _stable_offset_ignored() -> None:
    """Readers of what is committed are given what is undecided as well."""
    Partition.last_stable_offset = property(lambda self: self.high_watermark)  # type: ignore[method-assign, assignment]


def _aborts_untold() -> None:
    """Readers of what is committed are not told what was aborted."""
    in_read = AbortedTransactions.in_read

    def of_nothing(
        self: AbortedTransactions, offset: int, byte_count: int, *, up_to_offset: int
    ) -> AbortedSearch:
        return in_read(self, offset, 0, up_to_offset=up_to_offset)

    AbortedTransactions.in_read = of_nothing  # type: ignore[method-assign]


def _positions_end(*, commit: bool) -> None:
    """However a transaction ends, its positions become those of the group, or are forgotten."""
    end = GroupCoordinator.end_transaction

    def always_so(
        self: GroupCoordinator, offsets_partition: int, producer_id: int, **_: bool
    ) -> None:
        end(self, offsets_partition, producer_id, commit=commit)

    GroupCoordinator.end_transaction = always_so  # type: ignore[method-assign]


def _repetitions_appended() -> None:
    """A batch that a producer sends again, because the answer was lost, is appended again."""
    check = ProducerState.check

    def forgetful(
        self: ProducerState,
        header: BatchHeader,
        *,
        is_first_of_epoch_zero: bool = False,
        is_numbered: bool = True,
    ) -> None:
        check(self, header, is_first_of_epoch_zero=is_first_of_epoch_zero, is_numbered=is_numbered)

    ProducerState.check = forgetful  # type: ignore[method-assign]


_MARKERS: Final = count(1)

FAULTS: Final[dict[str, Callable[[], None]]] = {
    "wrong-marker": partial(_change_markers, lambda result: ControlType(1 - result)),
    "missing-marker": partial(
        # Every fourth.
        _change_markers,
        lambda result: result if next(_MARKERS) % 4 else None,
    ),
    "stable-offset-ignored": _stable_offset_ignored,
    "aborts-untold": _aborts_untold,
    "positions-always-committed": partial(_positions_end, commit=True),
    "positions-never-committed": partial(_positions_end, commit=False),
    "repetitions-appended": _repetitions_appended,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.histories.broker")
    parser.add_argument("--clock", type=Path, required=True)
    parser.add_argument("--fault", choices=FAULTS)
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_args()

    def prepare() -> None:
        _follow(options.clock)
        if options.fault is not None:
            FAULTS[options.fault]()

    serve(options.overrides, prepare)


if __name__ == "__main__":
    main()
