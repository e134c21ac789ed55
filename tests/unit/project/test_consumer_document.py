"""docs/consumer-reference.md is current, and has every setting and everything that is reported."""

import dataclasses
import re

import pytest

from kohort.client.config import ConsumerConfig
from kohort.client.consumer.health import Health
from kohort.client.consumer.metrics import RUN_COUNTERS, RUN_GAUGES
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.statistics import RebalancePhase
from kohort.client.net.sasl import MECHANISMS
from kohort.client.net.security import PROTOCOLS
from kohort.client.processing.figures import RunFigures
from kohort.client.processing.options import RunOptions
from scripts.consumer_document import PATH, document

TEXT = document()


def test_the_reference_is_current() -> None:
    assert PATH.read_text(encoding="utf-8") == TEXT, "run `make docs`"


@pytest.mark.parametrize("kind", [ConsumerConfig, RunOptions, Health, RunFigures])
def test_every_setting_and_field_is_explained(kind: type) -> None:
    explained = set(re.findall(r"^\| `(\w+)` \| .*\w.* \|$", TEXT, re.MULTILINE))
    exported = {figure.field for figure in (*RUN_COUNTERS, *RUN_GAUGES)}
    assert {field.name for field in dataclasses.fields(kind) if field.init} <= explained | exported
    assert "|  |" not in TEXT


def test_the_values_of_settings_and_states_are_listed() -> None:
    words = {*PROTOCOLS, *MECHANISMS, *(one.value for one in (*MemberState, *RebalancePhase))}
    assert all(word in TEXT for word in words)
