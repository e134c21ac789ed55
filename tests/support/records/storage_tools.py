"""What the tests of storage have in common: batches to append and logs to append them to."""

import weakref
from pathlib import Path

from kohort.broker.config.topic import TopicConfig
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.log.appending import Written
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.broker.storage.metadata.store import MetadataStore
from kohort.protocol.records.batch import placement_prefix, read_header, split_batches
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType, EndTransactionMarker, make_marker
from kohort.protocol.records.record import Record
from kohort.testing.simulated_filesystem import SimulatedFileSystem

WALL_MS = 1_700_000_000_000
DIRECTORY = Path("/data/t-0")


def settings(**changes: object) -> TopicConfig:
    """Small segments with a dense index, unless told otherwise."""
    defaults: dict[str, object] = {"segment_bytes": 4000, "index_interval_bytes": 300}
    return TopicConfig(**(defaults | changes))  # type: ignore[arg-type]


def batch_of(
    *values: bytes | None,
    timestamp: int = WALL_MS,
    producer_id: int = -1,
    producer_epoch: int = 0,
    base_sequence: int = -1,
) -> bytes:
    """A batch as a producer sends it, the timestamps of its records rising by one."""
    return encode_batch(
        [Record(value, timestamp=timestamp + number) for number, value in enumerate(values)],
        producer_id=producer_id,
        producer_epoch=producer_epoch if producer_id >= 0 else -1,
        base_sequence=base_sequence,
    )


def marker_of(
    result: ControlType, producer_id: int, epoch: int = 0, *, timestamp: int = WALL_MS
) -> bytes:
    """The marker that ends a transaction."""
    marker = EndTransactionMarker(result, 0)
    return make_marker(marker, producer_id=producer_id, producer_epoch=epoch, timestamp=timestamp)[
        0
    ]


def stored(batch: bytes, base_offset: int, leader_epoch: int = 0) -> bytes:
    """The batch as it has to be stored and read back."""
    prefix = placement_prefix(base_offset, read_header(batch).length, leader_epoch)
    return prefix + batch[len(prefix) :]


def open_log(
    files: FileSystem,
    directory: Path = DIRECTORY,
    *,
    clean: bool = True,
    recovery_point: int = 0,
    log_start_offset: int = 0,
    config: TopicConfig | None = None,
) -> PartitionLog:
    """A log with the settings of these tests; its only leader epoch is 0."""
    return PartitionLog.open(
        directory,
        config or settings(),
        OpeningTerms(
            wall_ms=WALL_MS,
            clean_shutdown=clean,
            recovery_point=recovery_point,
            log_start_offset=log_start_offset,
            leader_epoch_max=0,
        ),
        files=files,
    )


def memory_log(**changes: object) -> tuple[PartitionLog, SimulatedFileSystem]:
    files = SimulatedFileSystem()
    files.make_directory("/data")
    return open_log(files, config=settings(**changes)), files


def append(log: PartitionLog, batch: bytes, *, wall_ms: int = WALL_MS) -> Written:
    return log.append(batch, read_header(batch), leader_epoch=0, wall_ms=wall_ms)


def fill(log: PartitionLog, count: int, *, size: int = 50) -> list[bytes]:
    """Append `count` batches of two records each, and return them as they have to be read."""
    expected = []
    for number in range(count):
        batch = batch_of(b"%06d" % number + b"x" * size, b"second", timestamp=WALL_MS + number * 10)
        expected.append(stored(batch, append(log, batch).base_offset))
    return expected


def read_all(log: PartitionLog, *, max_bytes: int = 1000) -> list[bytes]:
    """Every batch from the start of the log to its end, as a consumer would read them."""
    offset = log.log_start_offset
    batches: list[bytes] = []
    while data := log.read(offset, max_bytes, up_to_offset=log.log_end_offset, min_one=True):
        for header, batch in split_batches(data):
            assert header.next_offset > offset
            offset = header.next_offset
            batches.append(bytes(batch))
    return batches


def memory_store(cluster_id: str = "x") -> MetadataStore:
    """Metadata in memory, closed at the latest when it is garbage collected."""
    store = MetadataStore(None, new_cluster_id=cluster_id)
    weakref.finalize(store, store._database.close)
    return store


def repair_indexes(log: PartitionLog) -> None:
    """Do what the broker does in another thread before it uses transaction indexes."""
    for segment in log.aborted.unready(log.log_start_offset):
        repair = log.aborted.repair(segment)
        repair.run()
        repair.take_over()
    assert not log.aborted.unready(log.log_start_offset)
