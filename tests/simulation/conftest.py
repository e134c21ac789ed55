import logging
from collections.abc import Iterator

import pytest


@pytest.fixture
def silent_brokers() -> Iterator[None]:
    """Thousands of starts, and brokers with faults, have much to tell."""
    logger = logging.getLogger("kohort")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
