"""docs/metrics.md says what the catalogue says."""

import re
from pathlib import Path

import yaml

from kohort.broker.metrics.catalogue import METRICS
from kohort.watch.catalogue import NAMES as OF_WATCH
from scripts.metrics_document import PATH, document

ROOT = Path(__file__).parents[4]


def test_the_document_is_what_the_catalogue_makes_it() -> None:
    assert (ROOT / PATH).read_text(encoding="utf-8") == document(), "run `make docs`"


def test_every_metric_is_in_the_document() -> None:
    assert [name for name in METRICS.keys() | OF_WATCH if f"| `{name}` " not in document()] == []


def test_every_alert_asks_for_metrics_of_the_catalogue() -> None:
    alerts = yaml.safe_load((ROOT / "deploy/prometheus/alerts.yml").read_text(encoding="utf-8"))
    asked = [rule["expr"] for group in alerts["groups"] for rule in group["rules"]]
    # Three ask what Prometheus has of every process: whether it is up, and since when.
    of_every_process = [text for text in asked if re.match(r"up\{|changes\(process_", text)]
    assert len(of_every_process) == 3
    ours = [text for text in asked if text not in of_every_process]
    names = [set(re.findall(r"\b(?:kafka|kohort)_\w+", text)) for text in ours]
    assert len(names) > 5
    assert all(names)
    assert set().union(*names) <= METRICS.keys() | OF_WATCH
