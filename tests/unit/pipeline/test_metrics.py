"""What jobs tell Prometheus."""

import urllib.request
from pathlib import Path

import pytest

from kohort.pipeline.errors import UnavailableError
from kohort.pipeline.metrics import Metrics
from tests.support.brokers.server_process import free_port


def test_a_file_has_what_was_done_after_each_batch(tmp_path: Path) -> None:
    path = tmp_path / "kohort.prom"
    metrics = Metrics("land")
    metrics.write_into(path)
    metrics.batch("orders", 30, 1.5, 7)
    metrics.quarantined("orders", "not_json", 2)
    metrics.batch("orders", 10, 0.5, 0)
    said = path.read_text().splitlines()
    assert 'kohort_pipeline_rows_total{job="land",topic="orders"} 40.0' in said
    assert 'kohort_pipeline_batches_total{job="land",topic="orders"} 2.0' in said
    assert 'kohort_pipeline_batch_seconds_total{job="land",topic="orders"} 2.0' in said
    assert 'kohort_pipeline_behind_offsets{job="land",topic="orders"} 0.0' in said
    reason = 'kohort_pipeline_quarantined_total{job="land",reason="not_json",topic="orders"} 2.0'
    assert reason in said


def test_they_are_served_at_a_port() -> None:
    metrics, port = Metrics("rebalances"), free_port()
    metrics.serve(port)
    metrics.batch("files", 3, 0.1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as answer:
        text = answer.read().decode()
    assert 'kohort_pipeline_rows_total{job="rebalances",topic="files"} 3.0' in text
    assert "kohort_pipeline_behind_offsets{" not in text
    with pytest.raises(UnavailableError, match="--metrics-port"):
        Metrics("land").serve(port)


def test_a_file_that_cannot_be_written_is_told_at_once(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="--metrics-file"):
        Metrics("land").write_into(tmp_path / "nowhere" / "kohort.prom")
