"""A broker on a disk without a byte to spare starts and serves what is there."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.topics.creation import NewTopic
from tests.support.brokers.running_topics import append, running_topics

RECORDS = 50


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes; only root can mount them."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mounting = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounting.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


def fill_up(disk: Path) -> None:
    with (disk / "others").open("wb", buffering=0) as file:
        while True:
            try:
                file.write(bytes(4096))
            except OSError:
                return


@pytest.mark.parametrize("stop_cleanly", [True, False])
@pytest.mark.parametrize(
    "missing",
    [".lock", "metadata.db", "metadata-mirror.db", "orders-1/*index", "orders-1/leader-epoch*"],
)
async def test_a_broker_starts_on_a_full_disk_and_serves_its_records(
    small_disk: Path, missing: str, *, stop_cleanly: bool
) -> None:
    data = small_disk / "data"
    async with running_topics(data, stop_cleanly=stop_cleanly) as topics:
        await topics.changes.create_topics([NewTopic(name="orders", partition_count=2)])
        topic = topics.get("orders")
        assert topic is not None
        for _ in range(RECORDS):
            append(topic.partitions[1])
    for path in data.glob(missing):
        path.unlink()
    fill_up(small_disk)
    settings = [f"log.dirs={data}", "listeners=PLAINTEXT://localhost:0", "kohort.metrics.port=-1"]
    settings.append("kohort.console.port=-1")
    async with Broker(load(overrides=settings)).running() as broker:
        partition = broker.services.topics.partition("orders", 1)
        assert partition is not None
        assert partition.failure is None
        read = partition.log.read(0, 1 << 20, up_to_offset=RECORDS, min_one=True)
        assert len(read) == partition.log.size_bytes
        assert partition.high_watermark == RECORDS
        # So that the stop can be marked as a clean one.
        (small_disk / "others").unlink()
