"""A broker on a disk without a byte to spare starts and serves what is there.

Only root can mount such a disk. Another user is root in a namespace of its own, and runs this
file's tests there, in a process that is: a process with threads cannot enter one.
"""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort.broker.app import Broker
from kohort.broker.config import load
from kohort.broker.topics.creation import NewTopic
from tests.support.brokers.running_topics import append, running_topics

RECORDS = 50

IS_ROOT = os.geteuid() == 0
AS_ROOT_OF_A_NAMESPACE = ("unshare", "--user", "--map-root-user", "--mount")


def mount(disk: Path, *command: str) -> None:
    """Mount four megabytes, by this command if one is given; skips the test if that is denied."""
    mounting = subprocess.run(
        [*command, "mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(disk)],
        check=False,
        capture_output=True,
        text=True,
    )
    if mounting.returncode != 0:
        pytest.skip(f"no file system can be mounted here: {mounting.stderr.strip()}")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """Four megabytes."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount(disk)
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


if not IS_ROOT:
    test_a_broker_starts_on_a_full_disk_and_serves_its_records.__test__ = False  # type: ignore[attr-defined]

    def test_the_same_as_root_of_a_namespace(tmp_path: Path) -> None:
        # In a namespace that ends with the command.
        mount(tmp_path, *AS_ROOT_OF_A_NAMESPACE)
        command = [sys.executable, "-m", "pytest", "-n", "0", "-q", "-p", "no:cacheprovider"]
        directory = tmp_path / "inside"
        inside = subprocess.run(
            [*AS_ROOT_OF_A_NAMESPACE, *command, f"--basetemp={directory}", __file__],
            check=False,
            capture_output=True,
            text=True,
            env={name: value for name, value in os.environ.items() if name[:7] != "PYTEST_"},
        )
        assert inside.returncode == 0, inside.stdout + inside.stderr
        assert re.search(r"^\d+ passed in ", inside.stdout, re.MULTILINE), inside.stdout
