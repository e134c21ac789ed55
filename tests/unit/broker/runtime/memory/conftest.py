"""The garbage collector as brokers have it."""

from collections.abc import Iterator

import pytest

from kohort.broker.runtime.memory.collector import collect_as_usual, collect_in_steps


@pytest.fixture
def in_steps() -> Iterator[None]:
    collect_in_steps()
    yield
    collect_as_usual()
