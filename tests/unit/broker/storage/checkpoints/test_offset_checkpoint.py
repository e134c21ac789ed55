import pytest

from kohort.broker.storage.checkpoints.offset_checkpoint import (
    RECOVERY_POINT_FILE,
    parse_offsets,
    read_offsets,
    write_offsets,
)
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.testing.simulated_filesystem import SimulatedFileSystem


def test_the_text_is_what_kafka_writes() -> None:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    write_offsets(files, "/data", RECOVERY_POINT_FILE, {("adm-m3", 1): 0, ("t", 0): 17})
    assert read_offsets(files, "/data", RECOVERY_POINT_FILE) == {("adm-m3", 1): 0, ("t", 0): 17}
    content = read_file(files, f"/data/{RECOVERY_POINT_FILE}")
    assert content == b"0\n2\nadm-m3 1 0\nt 0 17\n"


def test_a_directory_without_a_checkpoint_has_no_offsets() -> None:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    assert read_offsets(files, "/data", RECOVERY_POINT_FILE) == {}
    files.create(f"/data/{RECOVERY_POINT_FILE}")  # As Kafka leaves the cleaner's.
    assert read_offsets(files, "/data", RECOVERY_POINT_FILE) == {}


@pytest.mark.parametrize(
    "content",
    [
        b"1\n0\n",
        b"0\n2\nt 0 1\n",
        b"0\n1\nt 0\n",
        b"0\n1\nt 0 x\n",
        b"0\n1\nt 0 -5\n",
        b"0\n1\nt -1 5\n",
        b"0\nx\n",
        b"0",
        b"\xff\xfe",
        b"0\n2\nt 0 1\nt 0 2\n",
    ],
)
def test_text_that_is_no_checkpoint_is_refused(content: bytes) -> None:
    with pytest.raises(CorruptFileError):
        parse_offsets(content, "checkpoint")
