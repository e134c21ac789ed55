"""Transactions keep their promises on every disk that a kill or a power loss leaves behind.

The checks in `tests/simulation/transactions` refer to the promises by number:

P1 Readers see all records of a transaction, or none.
P2 No aborted record is read as committed, and no committed record is missing.
P3 The last stable offset never decreases, and never passes an undecided transaction.
P4 No batch follows a marker of a higher epoch.
P5 Only one client ends a transaction.
P6 A pair of producer id and epoch is given out once.
P7 A decided transaction is completed.
P8 Committed offsets are the fold of the log over committed transactions.
P9 The state after replay is the state before the kill.
P10 The lists of aborted transactions are those of the whole log.
P11 Compaction keeps the last committed value of each key.
P12 After recovery, partitions and coordinator agree.
"""

import time
from collections import Counter

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.testing.virtual_clock import VirtualClock
from tests.simulation.transactions.broker import Broker, Disk, new_loop, settings
from tests.simulation.transactions.history import examine_history
from tests.support import messages as m

STATES_SHORT = 30
"""For each way of flushing."""
STATES_LONG = 60_000
STATES_OF_A_HISTORY = 3_000

pytestmark = pytest.mark.usefixtures("silent_brokers")


@pytest.mark.parametrize("is_forced", [True, False], ids=["forced", "cached"])
def test_what_was_told_is_so_on_every_disk(is_forced: bool, long_form: bool) -> None:
    wanted = STATES_LONG if long_form else STATES_SHORT
    counts: Counter[str] = Counter()
    began, seed = time.monotonic(), 0
    while counts["states"] < wanted:
        states = min(STATES_OF_A_HISTORY, wanted)
        density = 0.1 if long_form else 0.015
        counts += examine_history(seed, is_forced=is_forced, states=states, density=density)
        seed += 1
        if long_form:
            duration = time.monotonic() - began
            print(f"{duration:.0f} s, {seed} seeds:", dict(counts), flush=True)
    for what in ("committed", "aborted", "positioned", "states without power"):
        assert counts[what] > 0, what


def test_a_request_that_a_handler_refuses_is_answered_as_a_client_sees_it() -> None:
    partition = m.TxnOffsetCommitRequestPartition(
        partition_index=0, committed_offset=1, committed_metadata=None
    )
    request = m.TxnOffsetCommitRequest(
        transactional_id="no one's",
        group_id="group",
        producer_id=1,
        producer_epoch=0,
        topics=[m.TxnOffsetCommitRequestTopic(name="t", partitions=[partition])],
    )

    async def live() -> int:
        broker = Broker(Disk(), settings(is_forced=False), clock)
        try:
            await broker.start()
            answer = await broker.ask(request, 5)
        finally:
            await broker.end()
        code: int = answer.topics[0].partitions[0].error_code
        return code

    clock = VirtualClock()
    loop = new_loop(clock, lambda: 0)
    try:
        assert loop.run_until_complete(live()) == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    finally:
        loop.close()
