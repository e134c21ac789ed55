"""A setting is said to be honoured exactly if some code reads it."""

import re
from functools import cache
from pathlib import Path

import pytest

from broker.config.current import BROKER_SETTINGS
from broker.config.settings import Setting
from broker.config.topic import TOPIC_SETTINGS

BROKER = Path(__file__).parents[4] / "broker"

HONOURED_WITHOUT_BEING_READ = {
    # Kafka asks for no more replicas than there are, and there is one.
    "min.insync.replicas",
    # Replaces segment.bytes when the configs of a topic are put together.
    "internal.segment.bytes",
}


@cache
def words() -> frozenset[str]:
    """Every word of the broker's sources, apart from where settings are declared."""
    declared_in = {BROKER / "config", BROKER / "storage" / "config.py"}
    sources = [path for path in BROKER.rglob("*.py") if declared_in.isdisjoint(path.parents)]
    sources = [path for path in sources if path not in declared_in]
    sources.append(BROKER / "config" / "broker.py")
    return frozenset(re.findall(r"\w+", "\n".join(path.read_text("utf-8") for path in sources)))


FALLBACKS = {
    setting.declared.falls_back_to
    for setting in [*BROKER_SETTINGS.values(), *TOPIC_SETTINGS.values()]
}


@pytest.mark.parametrize("setting", TOPIC_SETTINGS.values(), ids=lambda setting: setting.name)
def test_a_topic_config_is_honoured_exactly_if_it_is_read(setting: Setting) -> None:
    is_read = setting.attribute in words() or setting.name in HONOURED_WITHOUT_BEING_READ
    assert setting.declared.honoured is is_read


@pytest.mark.parametrize(
    "setting",
    [one for one in BROKER_SETTINGS.values() if one.name not in FALLBACKS],
    ids=lambda setting: setting.name,
)
def test_a_broker_setting_is_honoured_exactly_if_it_is_read(setting: Setting) -> None:
    assert setting.declared.honoured is (setting.attribute in words())
