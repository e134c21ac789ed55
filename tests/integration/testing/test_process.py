"""The broker of a test leaves the process of the test as it was."""

import resource
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.testing import Kafka


@pytest.fixture
def low_limit() -> Iterator[tuple[int, int]]:
    """The limit on open files: one that can be raised."""
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = (min(before[1], 1_024) - 1, before[1])
    resource.setrlimit(resource.RLIMIT_NOFILE, limit)
    try:
        yield limit
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, before)


@pytest.mark.parametrize("is_on_disk", [False, True])
def test_the_limit_on_open_files_stays(
    tmp_path: Path, low_limit: tuple[int, int], *, is_on_disk: bool
) -> None:
    with Kafka(directory=tmp_path if is_on_disk else None) as kafka:
        kafka.produce("t", b"value")
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == low_limit
