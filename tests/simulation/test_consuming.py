"""Whole consumers, with the applications that use them, through all that can happen to them."""

import time

import pytest

from kohort.client.core.records import AnyRecord, ConsumerRecord
from kohort.client.group.callbacks import Offsets
from kohort.client.group.offsets import GroupOffsets
from kohort.protocol.records.batch import TimestampType
from tests.simulation.consuming import process
from tests.simulation.consuming.campaign import STEPS, describe, live_many
from tests.simulation.consuming.group_host import Author
from tests.simulation.consuming.ledger import Ledger
from tests.simulation.consuming.life import Life, LifeError, Tally, live


@pytest.mark.parametrize("seed", range(2))
def test_consumers_keep_their_promises_and_get_all_done_when_left_alone(seed: int) -> None:
    """Nothing is committed that was not processed, or behind another owner's position; nothing is
    returned of a partition that is not held; callbacks run to their end, once.
    """
    tally = live(f"short.{seed}", 120)
    assert tally.records > 100
    assert tally.commits > 10


@pytest.mark.long
@pytest.mark.timeout(7200)
def test_consumers_keep_their_promises_for_a_million_steps(
    capsys: pytest.CaptureFixture[str],
) -> None:
    begun_s, total = time.monotonic(), Tally()
    for tally in live_many("long", 1_000_000):
        total.add(tally)
        with capsys.disabled():
            if total.lives % 100 == 0:
                print(f"\n{describe(total, begun_s)}")
    assert total.steps >= 1_000_000
    assert total.lives > 100_000 // STEPS


# That each promise can be broken.


def record(offset: int) -> AnyRecord:
    return ConsumerRecord("t", 0, offset, 0, TimestampType.CREATE_TIME, None, b"%d" % offset, -1, 1)


FIRST = Author(process=1, generation=5, member_id="first")
SECOND = Author(process=2, generation=6, member_id="second")
LATER = FIRST._replace(generation=6)


@pytest.mark.parametrize(
    ("processed", "committed", "last", "told"),
    [
        (
            [0, 2],
            [(FIRST, 1, {0})],
            (FIRST, 2, {0}),
            "committed 2 of partition 0, of which records",
        ),
        ([0, 1], [(FIRST, 2, {0})], (SECOND, 1, {0}), "1 of partition 0 behind 2 of process 1"),
        ([0], [], (FIRST, 1, {2, 1}), r"committed 1 of partition 0, and holds \[1, 2\]"),
        ([0], [(FIRST, 1, {0}), (SECOND, 1, {0})], (LATER, 1, {0}), "as .* and asked for as"),
    ],
    ids=["unprocessed", "behind another owner", "not held", "as another than it was asked for"],
)
def test_a_commit_that_breaks_a_promise_is_noticed(
    processed: list[int],
    committed: list[tuple[Author, int, set[int]]],
    last: tuple[Author, int, set[int]],
    told: str,
) -> None:
    ledger = Ledger()
    for offset in processed:
        ledger.process(record(offset))
    if last[0] is LATER:
        ledger.ask(FIRST, 0, 1)
    for author, offset, holds in committed:
        ledger.commit(author, 0, offset, holds)
    author, offset, holds = last
    with pytest.raises(AssertionError, match=told):
        ledger.commit(author, 0, offset, holds)


def test_a_record_of_a_partition_that_is_not_held_is_noticed() -> None:
    with pytest.raises(AssertionError, match="process 1 was given 0 of partition 0, and holds"):
        Ledger().handed_out(1, [record(0)], set())


class Undisturbed(Life):
    """Nothing goes wrong but what processes bring upon themselves."""

    def _happen(self) -> None:
        self._go_on()


def test_a_commit_that_goes_out_under_a_later_identity_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The fault is put back: an attempt after a rebalance has offsets of the time before it."""
    send = GroupOffsets._send_commit

    async def send_as_of_now(
        self: GroupOffsets, author: object, offsets: Offsets, *, is_automatic: bool
    ) -> float:
        return await send(self, self._commit_identity(), offsets, is_automatic=is_automatic)

    monkeypatch.setattr(GroupOffsets, "_send_commit", send_as_of_now)
    monkeypatch.setattr(process, "COMMITS_LOST", 1.0)
    monkeypatch.setattr(process, "BACKOFFS_MS", [2_000])

    def live_on() -> None:
        for number in range(300):  # One in ten comes across it.
            live(f"by then.{number}", 60, kind=Undisturbed)

    with pytest.raises(LifeError, match="committed"):
        live_on()
