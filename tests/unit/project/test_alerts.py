"""The alerts: each is described, asks for metrics that there are, and fires when it should."""

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[3]
FOLDER = ROOT / "deploy" / "prometheus"
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
OTHERS = {"up", "process_start_time_seconds"}
"""What Prometheus knows of every target, and prometheus-client of every process."""


def test_every_alert_has_a_place_in_the_document_and_no_other_has() -> None:
    headings = re.findall(r"^### (\w+)$", (ROOT / "docs" / "alerts.md").read_text(), re.MULTILINE)
    assert headings == [rule["alert"] for rule in RULES]


def test_every_runbook_is_a_section_of_a_page() -> None:
    for rule in RULES:
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        headings = re.findall(r"^#+ (\w+)$", (ROOT / page).read_text(), re.MULTILINE)
        assert anchor in {heading.lower() for heading in headings}
        assert anchor == rule["alert"].lower()


def test_every_metric_that_an_alert_asks_for_is_there() -> None:
    document = (ROOT / "docs" / "metrics.md").read_text()
    known = set(re.findall(r"^\| `(\w+)`", document, re.MULTILINE)) | OTHERS
    for rule in RULES:
        asked = set(re.findall(r"\b(?:kohort|kafka|process|up)\w*(?=[ {\[)]|$)", rule["expr"]))
        asked -= {"kohort"}
        assert asked
        assert asked <= known, rule["alert"]


def test_every_alert_is_tested() -> None:
    tests = (FOLDER / "alerts_test.yml").read_text()
    for rule in RULES:
        assert f'ALERTS{{alertname="{rule["alert"]}", alertstate="firing", ' in tests


@pytest.mark.long
def test_alerts_fire_when_they_should_by_prometheus_own_tool() -> None:
    if shutil.which("promtool") is None:
        subprocess.run([ROOT / "scripts" / "apt-install", "prometheus"], check=True)
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "alerts_test.yml"]):
        run = subprocess.run(
            ["promtool", *words], cwd=FOLDER, capture_output=True, text=True, check=False
        )
        assert run.returncode == 0, run.stdout + run.stderr
