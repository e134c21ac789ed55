from base64 import urlsafe_b64decode

import pytest

from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.checkpoints.partition_metadata import (
    FILE_NAME,
    read_topic_id,
    write_topic_id,
)
from kohort.broker.storage.errors import CorruptFileError
from kohort.broker.storage.filesystem import read_file
from kohort.testing.simulated_filesystem import SimulatedFileSystem

# As a Kafka 4.4 broker wrote it.
KAFKA_TEXT = b"version: 0\ntopic_id: QRrTXy0WSdeQKLA9lpzlSQ"
TOPIC_ID = urlsafe_b64decode("QRrTXy0WSdeQKLA9lpzlSQ==")


@pytest.fixture
def files() -> SimulatedFileSystem:
    files = SimulatedFileSystem()
    files.make_directory("/t-0")
    return files


def test_the_text_is_what_kafka_writes(files: SimulatedFileSystem) -> None:
    write_topic_id(files, "/t-0", TOPIC_ID, sync=True)
    assert read_file(files, f"/t-0/{FILE_NAME}") == KAFKA_TEXT
    assert read_topic_id(files, "/t-0") == TOPIC_ID


def test_a_directory_without_the_file_has_no_id(files: SimulatedFileSystem) -> None:
    assert read_topic_id(files, "/t-0") is None


@pytest.mark.parametrize(
    "text",
    [b"", b"version: 1\ntopic_id: QRrTXy0WSdeQKLA9lpzlSQ", b"version: 0\ntopic_id: QRrT", b"\xff"],
)
def test_other_text_is_refused(files: SimulatedFileSystem, text: bytes) -> None:
    replace_file(files, f"/t-0/{FILE_NAME}", text)
    with pytest.raises(CorruptFileError):
        read_topic_id(files, "/t-0")


@pytest.mark.parametrize("position", range(len(KAFKA_TEXT)))
def test_every_damaged_byte_is_noticed(files: SimulatedFileSystem, position: int) -> None:
    write_topic_id(files, "/t-0", TOPIC_ID, sync=True)
    files.flip(f"/t-0/{FILE_NAME}", position, 1)
    with pytest.raises(CorruptFileError):
        read_topic_id(files, "/t-0")
