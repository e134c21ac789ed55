"""Positions after any history are the fold of the log: of each, the last record that no aborted
transaction takes back. Commits, ends, removals, restarts and a slow log come in any order.
"""

from typing import TypeAlias

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.groups.offsets.table import OffsetTable
from kohort.groups.records import OffsetRecord, PendingOffset
from kohort.groups.requests import OffsetToCommit, TopicPartition
from kohort.protocol.errors import ErrorCode
from tests.support.groups.scenario import MINUTE, Scenario, settled
from tests.support.suites.examples import examples

PARTITIONS = 2
PRODUCERS = (7, 8, 9)
RETENTION_MS = 7 * 24 * 60 * MINUTE

Step: TypeAlias = tuple[str, int, int]
"""What is done, by which producer, to which partition."""

ACTS = (
    *("plain", "pending", "pending", "commit", "abort"),
    *("delete", "forget", "sweep", "restart", "hold", "release", "fail"),
)

steps = st.lists(
    st.tuples(st.sampled_from(ACTS), st.sampled_from(PRODUCERS), st.integers(0, PARTITIONS - 1)),
    max_size=25,
)


def live_positions(table: OffsetTable) -> dict[int, int]:
    return {place.partition: committed.offset for place, committed in table.items()}


def check(s: Scenario) -> None:
    """Holds whenever nothing is on its way."""
    table = s.group.offsets
    counting = settled(s.log)
    committed = [record for record in counting if isinstance(record, OffsetRecord)]
    assert live_positions(table) == {r.partition: r.committed.offset for r in committed}
    assert table.count == len(committed)
    pending = {r.partition for r in counting if isinstance(r, PendingOffset)}
    unstable = {p for p in range(PARTITIONS) if table.is_unstable("t", p)}
    assert unstable == pending


def take(s: Scenario, step: Step, offset: int) -> None:
    what, producer_id, partition = step
    is_free = not s.group.outbox.in_flight
    match what:
        case "commit" | "abort":
            s.end_transaction(producer_id, commit=what == "commit")
        case "hold":
            s.hold_appends = True
        case "release" | "fail":
            s.hold_appends = False
            s.fail_appends = ErrorCode.KAFKA_STORAGE_ERROR if what == "fail" else None
            if not is_free:
                s.finish_append()
            s.fail_appends = None
        case _ if not is_free:
            pass
        case "plain":
            s.commit(OffsetToCommit("t", partition, offset))
        case "pending":
            s.commit(OffsetToCommit("t", partition, offset), producer_id=producer_id)
        case "delete":
            s.step(lambda: s.group.delete_offsets([TopicPartition("t", partition)], s.ticket()))
        case "forget":
            s.step(lambda: s.group.forget_topics({"t": None}))
        case "sweep":
            s.ms += RETENTION_MS
            s.sweep()
        case "restart":
            s.restart()


@settings(max_examples=examples(400))
@given(steps)
def test_positions_are_the_fold_of_the_log(history: list[Step]) -> None:
    s = Scenario()
    for offset, step in enumerate(history):
        take(s, step, offset)
        if s.state == "Dead":
            return
        if not s.group.outbox.in_flight:
            check(s)
