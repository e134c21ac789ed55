"""docs/running-a-consumer.md has every setting and everything that a consumer reports."""

import ast
import dataclasses
import re
from pathlib import Path

from kohort import Consumer
from kohort.client.config import ConsumerConfig
from kohort.client.consumer.health import Health, HealthLimits
from kohort.client.consumer.metrics import FIGURES, ConsumerCollector
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.statistics import RebalancePhase
from kohort.client.net.sasl import MECHANISMS
from kohort.client.net.security import PROTOCOLS, SecurityConfig

TEXT = (Path(__file__).parents[3] / "docs" / "running-a-consumer.md").read_text(encoding="utf-8")
WORDS = set(re.findall(r"`([\w-]+)`", TEXT))
PREFIXES = [word for word in WORDS if word.startswith("kafka_") and word.endswith("_metrics_")]
SECURITY = {field.name for field in dataclasses.fields(SecurityConfig) if field.init}


def test_every_setting_is_listed_with_its_default() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(.*?)` \| ", TEXT.partition("## Groups")[0], re.MULTILINE)
    names = {field.name for field in dataclasses.fields(ConsumerConfig) if field.init}

    assert {name for name, _ in rows} == names - SECURITY
    documented = ConsumerConfig(**{name: ast.literal_eval(text) for name, text in rows})
    reason = documented.first_reason
    assert dataclasses.replace(documented, join_reason=reason) == ConsumerConfig()


def test_every_metric_is_explained() -> None:
    collector = ConsumerCollector(Consumer("t", group_id="g"))
    counters = {f"{one.name}_total" for one in collector.collect() if one.type == "counter"}
    others = {one.name for one in collector.collect() if one.type != "counter"}
    documented = {f"{prefix}{word.replace('-', '_')}" for prefix in PREFIXES for word in WORDS}
    assert counters | others <= WORDS | documented
    assert {figure.name for figure in FIGURES} <= WORDS


def test_every_field_of_health_is_explained() -> None:
    assert {field.name for field in dataclasses.fields(Health)} <= WORDS
    assert (
        set(Health(limits=HealthLimits(session_timeout_ms=1, max_poll_interval_ms=1)).as_dict())
        <= WORDS
    )
    assert all(one.value in TEXT for one in (*MemberState, *RebalancePhase))


def test_every_way_to_be_secure_is_explained() -> None:
    assert SECURITY | set(PROTOCOLS) | set(MECHANISMS) <= WORDS
