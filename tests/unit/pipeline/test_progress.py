"""What is told of a batch."""

import json
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

pytest.importorskip("pyspark")

from kohort.pipeline.progress import Progress, behind, landing, line

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, StreamingQueryProgress


def report(ends: object, latest: object) -> "StreamingQueryProgress":
    sources = [SimpleNamespace(endOffset=json.dumps(ends), latestOffset=json.dumps(latest))]
    made = SimpleNamespace(
        name="land orders",
        batchId=3,
        numInputRows=1500,
        batchDuration=2500,
        sources=sources,
    )
    return cast("StreamingQueryProgress", made)


def test_what_is_behind_is_counted_over_all_partitions() -> None:
    assert behind(report({"t": {"0": 5, "1": 7}}, {"t": {"0": 9, "1": 7, "2": 3}})) == 7


@pytest.mark.parametrize("latest", [None, "null"])
def test_a_batch_that_is_repeated_does_not_say_how_far_behind_it_is(latest: str | None) -> None:
    """After a kill, Spark tells no latest offset with the first batch."""
    repeated = report({"t": {"0": 5}}, {})
    repeated.sources[0].latestOffset = latest  # type: ignore[misc, assignment]
    assert behind(repeated) is None
    assert line("land orders", repeated, 1).endswith(", lag unknown")


def test_a_log_that_became_shorter_is_not_ahead() -> None:
    assert behind(report({"t": {"0": 5}}, {"t": {"0": 2}})) == 0


@pytest.mark.parametrize("latest", [None, {}, [], 5, {"t": 5}])
def test_sources_that_are_no_topics_have_nothing_behind(latest: object) -> None:
    assert behind(report({}, latest)) == 0


def test_a_batch_is_one_line() -> None:
    told = line("land orders", report({"t": {"0": 5}}, {"t": {"0": 2005}}), 1500)
    assert told == ("land orders: batch 3, 1,500 rows in 2.5 s, 600 rows/s, 2,000 offsets behind")


def test_rows_that_the_job_has_read_again_are_counted_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    progress, told = Progress(), report({"t": {"0": 5}}, {"t": {"0": 5}})
    event = cast("QueryProgressEvent", SimpleNamespace(progress=told))
    told.numInputRows = 0  # type: ignore[misc]
    progress.add_uncounted("orders", 3, 250)
    for _ in range(2):
        progress.onQueryProgress(event)
    assert progress.rows == {"land orders": 250}
    # The first batch of a run has no rate: Spark's start would be part of it.
    assert "batch 3, 250 rows in 2.5 s, 0 offsets behind" in capsys.readouterr().err
    told.numInputRows = 250  # type: ignore[misc]
    progress.onQueryProgress(event)
    assert "250 rows in 2.5 s, 100 rows/s" in capsys.readouterr().err


def test_who_waits_is_told_which_topics_are_landed_and_how_many_are_to_come() -> None:
    assert landing(["orders"], 0) == "landing orders"
    assert landing(["orders", "returns"], 3) == "landing orders, returns, 3 topics waiting"
