"""A disk that is full: said in words, and a run after making room completes what was begun."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.pipeline.conftest import Pipeline
from tests.pipeline.driver import table_rows
from tests.pipeline.topics import Topics


def mount(*arguments: str) -> bool:
    done = subprocess.run(["mount", *arguments], check=False, capture_output=True)
    return done.returncode == 0


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "disk"
    place.mkdir()
    try:
        mounted = mount("-t", "tmpfs", "-o", "size=3m", "tmpfs", str(place))
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("a file system of a few megabytes can only be mounted by root")
    yield place
    subprocess.run(["umount", "--lazy", str(place)], check=True)


@pytest.mark.long
def test_a_full_disk_is_named_and_costs_no_row(
    pipeline: Pipeline, topics: Topics, small_disk: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    topic = topics.create()
    # Text that does not compress away would be slow to make; many rows do it too.
    for part in range(12):
        topics.produce(topic, 30_000, first=part * 30_000, size=0)
    options = (topic, "--available-now", "--lake", small_disk / "lake")
    given = ("land", *options, "--bootstrap-server", topics.bootstrap)
    batches = ("--max-offsets-per-trigger", 40_000)
    assert pipeline(*given, *batches) == 3
    told = capfd.readouterr().err
    assert "the disk is full" in told
    assert "Traceback" not in told

    assert mount("-o", "remount,size=200m", str(small_disk))
    assert pipeline(*given, *batches) == 0
    assert table_rows(small_disk / "lake", f"land/{topic}") == topics.read(topic)
