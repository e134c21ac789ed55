"""A broker for tests, and replacements for the environment of a broker or consumer.

`Kafka` is a real broker in the test's process; the pytest plugin provides it as the fixture
`kafka`. The replacements (time, an event loop, a disk, a socket) are public, so that projects that
embed a part of Kohort can test it as Kohort's own tests do; README.md says which one to choose.

Names are imported on first use, because pytest loads the plugin in this package everywhere.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

_HOMES: Final = {
    "Kafka": "kohort.testing.kafka",
    "KafkaFault": "kohort.testing.kafka",
    "KafkaGroup": "kohort.testing.kafka",
    "VirtualKafka": "kohort.testing.virtual_kafka",
    "kafka_settings": "kohort.testing.plugin",
    "run_handler": "kohort.testing.handling",
}

__all__ = ["Kafka", "KafkaFault", "KafkaGroup", "VirtualKafka", "kafka_settings", "run_handler"]


def __getattr__(name: str) -> Any:  # noqa: ANN401 - a class, or a marker.
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


if TYPE_CHECKING:
    from kohort.testing.handling import run_handler as run_handler
    from kohort.testing.kafka import Kafka as Kafka
    from kohort.testing.kafka import KafkaFault as KafkaFault
    from kohort.testing.kafka import KafkaGroup as KafkaGroup
    from kohort.testing.plugin import kafka_settings as kafka_settings
    from kohort.testing.virtual_kafka import VirtualKafka as VirtualKafka
