"""The marker that says what the broker of a test is started with."""

from __future__ import annotations

from typing import Final

import pytest

kafka_settings: Final = pytest.mark.kafka_settings
"""``@kafka_settings({"num.partitions": 3})``, ``@kafka_settings({}, on_disk=True)``."""
