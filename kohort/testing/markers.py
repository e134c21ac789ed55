"""The marker with the settings of a test's broker."""

from typing import Final

import pytest

kafka_settings: Final = pytest.mark.kafka_settings
"""``@kafka_settings({"num.partitions": 3})``, ``@kafka_settings({}, on_disk=True)``."""
