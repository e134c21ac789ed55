"""What analysis, report and advisor make of a consumer group: nobody in it stops as a whole."""

from datetime import UTC, datetime
from functools import cache
from typing import Any

from kohort.groups.history.json_form import as_json
from kohort.insight import event_rows
from kohort.insight.advisor.computation import compute_advice
from kohort.insight.analysis.finder import Thresholds, compute_findings
from kohort.insight.report.contents import Contents
from kohort.insight.report.events import History
from kohort.insight.report.from_history import advice_rows, group_page
from kohort.insight.report.markup import NBSP
from kohort.insight.report.page import render
from tests.support.groups.consumer_group import INTERVAL_MS, Client, ConsumerGroup, beat


@cache
def events() -> list[dict[str, Any]]:
    """One member has everything; another joins, and waits 4 s until it comes for its share."""
    world = ConsumerGroup()
    world.topics.change("t", 2)
    first, second = Client("a", None, ("t",)), Client("b", None, ("t",))
    beat(world, first)
    world.pass_time(10 * INTERVAL_MS)
    beat(world, second)
    world.pass_time(500)
    beat(world, first)
    world.pass_time(100)
    beat(world, first)
    world.pass_time(4_000)
    beat(world, second)
    return [as_json(record) for record in world.rebalances]


def test_the_rows_have_the_times_of_the_record() -> None:
    event = events()[1]
    row = event_rows.rebalance(event)
    assert (row["group_type"], row["assigned_ms"], row["assigned_by"]) == ("consumer", 0, "at_once")
    assert (row["store_ms"], row["join_phase_ms"], row["duration_ms"]) == (0, None, 4_600)
    loser, winner = event_rows.members(event)
    assert (loser["type"], loser["epoch_before"], loser["epoch"]) == ("consumer", 2, 3)
    assert (loser["told_ms"], loser["revoked_ms"], loser["reached_ms"]) == (500, 600, 600)
    assert (winner["reached_ms"], winner["completed_ms"]) == (0, 4_600)


def test_a_partition_is_without_a_reader_from_its_revocation_until_it_is_given() -> None:
    history = History("g", events()).rows
    began = history.rebalances[1].started_at or 0
    findings: dict[str, Any] = dict(compute_findings(history, Thresholds(days=1)))
    states = {
        (row.topic, row.partitions): (row.from_at - began, (row.until_at or 0) - began)
        for row in findings["partitions"]
        if row.state == "unavailable"
    }
    assert states == {("t", (1,)): (600, 4_600)}
    (slow,) = findings["slow_members"]
    assert (slow.process, slow.waited_for_longest_ms) == ("b", 4_000)
    (gap,) = findings["heartbeat_gaps"]
    assert (gap.told_count, gap.told_longest_ms) == (1, 500)


def test_the_report_speaks_of_partitions_and_the_advice_is_of_the_same_protocol() -> None:
    history = History("g", events())
    advice = compute_advice("g", history.events, known={"heartbeat_interval_ms": 5_000})
    assert advice is not None
    assert (advice.recorded.setting.consumer, advice.recorded.rebalances) == (True, 2)
    assert all(prediction.setting.consumer for prediction in advice.front)
    # From the answer that takes partitions to the heartbeat without them.
    assert [slot.revoke.took_ms for slot in advice.trace.slots] == [(100,), ()]
    page = group_page(history, advice_rows(advice))
    text = render(Contents([page]), "a test", datetime(2026, 1, 1, tzinfo=UTC)).replace(NBSP, " ")
    assert "partitions had no owner for 4 s in total" in text
    assert "members were stopped" not in text.lower()
