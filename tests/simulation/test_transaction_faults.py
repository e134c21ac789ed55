"""The simulation of transactions finds what it is made to find: each fault is one that was made,
or could be.
"""

from typing import Any

import pytest

from kohort.broker.core.partition.transactions import TransactionSpans
from kohort.broker.core.transaction.effects import Append
from kohort.broker.core.transaction.records import TransactionRecord
from kohort.broker.storage.compaction.filter import AbortedRanges
from kohort.broker.transactions.host import TransactionHost
from kohort.broker.transactions.reconciling import Reconciler
from tests.simulation.transactions.history import examine_history

HISTORIES = 12
STATES = 400

pytestmark = pytest.mark.usefixtures("silent_brokers")


def finding(*, is_forced: bool, density: float) -> str:
    """What the first history says in which something is wrong."""
    for seed in range(HISTORIES):
        try:
            examine_history(seed, is_forced=is_forced, states=STATES, density=density)
        except AssertionError as error:
            return str(error)
    return "nothing"


def test_undecided_records_that_are_shown_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def everything(_: TransactionSpans, high_watermark: int, log_start_offset: int) -> int:
        return max(high_watermark, log_start_offset)

    monkeypatch.setattr(TransactionSpans, "last_stable_offset", everything)
    assert "undecided records are shown" in finding(is_forced=False, density=0.0001)


@pytest.mark.long
def test_markers_before_the_decision_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    append = TransactionHost._append

    def mark_and_append(self: TransactionHost, one: Any, effect: Append) -> None:  # noqa: ANN401
        record = effect.record
        if isinstance(record, TransactionRecord) and record.state.is_prepared:
            for place in record.partitions:
                self.marking.writer.write(
                    place.topic,
                    place.partition,
                    record.producer_id,
                    record.producer_epoch,
                    record.result,
                    coordinator_epoch=0,
                    transaction_version=record.client_version,
                )
        append(self, one, effect)

    monkeypatch.setattr(TransactionHost, "_append", mark_and_append)
    assert finding(is_forced=True, density=0.2) != "nothing"


@pytest.mark.long
def test_a_start_that_repairs_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def repair(_: Reconciler, found: object) -> int:
        return 0

    monkeypatch.setattr(Reconciler, "repair", repair)
    assert "and the coordinator has" in finding(is_forced=False, density=0.2)


@pytest.mark.long
def test_compaction_that_counts_aborted_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AbortedRanges, "holds", lambda *_: False)
    assert finding(is_forced=False, density=0.02) != "nothing"
