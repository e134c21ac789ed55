"""What is made of a partition that a real Kafka wrote in transactions: what the Kafka itself says.

The stable offset, the lists of aborted transactions, the producers, and the files beside the log
byte for byte, whether they are taken as they lie there or rebuilt from the batches.
"""

import random
import shutil
from dataclasses import dataclass
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kohort.broker.config.topic import TopicConfig
from kohort.broker.core.partition.producers import ProducerSnapshot
from kohort.broker.storage.checkpoints.producer_snapshot import decode_snapshot
from kohort.broker.storage.log.log import PartitionLog
from kohort.broker.storage.log.opening import OpeningTerms
from kohort.protocol.messages.fetch import (
    FetchResponse,
    PartitionData,
)
from kohort.protocol.records.batch import BatchHeader, iter_headers
from tests.support.brokers.kafka_server import KafkaServer
from tests.support.clients.confluent_client import create_topics
from tests.support.network.requests import fetch_request
from tests.support.network.wire import RawClient

pytestmark = pytest.mark.long

MIB = 1 << 20
WALL_MS = 1_800_000_000_000
STEPS = 120


class Producer:
    """A transactional producer of librdkafka's, and whether its transaction is open."""

    def __init__(self, bootstrap: str, number: int) -> None:
        self.inner = confluent_kafka.Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": f"id-{number}", "linger.ms": 0}
        )
        self.inner.init_transactions(60)
        self.is_open = False

    def send(self, size: int) -> None:
        if not self.is_open:
            self.inner.begin_transaction()
            self.is_open = True
        self.inner.produce("t", b"v" * size, partition=0)
        self.inner.flush(60)

    def end(self, *, commit: bool) -> None:
        if commit:
            self.inner.commit_transaction(60)
        else:
            self.inner.abort_transaction(60)
        self.is_open = False


@dataclass
class OffsetAnswer:
    """What the Kafka said to a fetch of committed records."""

    offset: int
    data: PartitionData

    @property
    def aborted(self) -> list[tuple[int, int]]:
        return [(one.producer_id, one.first_offset) for one in self.data.aborted_transactions or []]

    @property
    def headers(self) -> list[tuple[int, BatchHeader]]:
        """The whole batches, and where they start: a Kafka cuts the last one at the limit."""
        return list(iter_headers(self.data.records or b"", partial_tail=True))


@dataclass
class Left:
    """A partition as the Kafka left it, and what it had said of it."""

    directory: Path
    answers: list[OffsetAnswer]

    def opened(self, *, clean: bool = True) -> PartitionLog:
        return PartitionLog.open(
            self.directory,
            TopicConfig(),
            OpeningTerms(wall_ms=WALL_MS, clean_shutdown=clean, is_known=False),
        )

    def files(self, suffix: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in self.directory.glob(f"*{suffix}")}


def write(server: KafkaServer) -> None:
    """Four producers at once, each with transactions of some batches; two are left open."""
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    topic = NewTopic("t", 1, 1, config={"segment.bytes": str(MIB)})
    create_topics(admin, topic)
    choices = random.Random(5)
    producers = [Producer(server.bootstrap, number) for number in range(4)]
    for _ in range(STEPS):
        producer = choices.choice(producers)
        if producer.is_open and choices.random() < 0.4:
            producer.end(commit=choices.random() < 0.4)
        else:
            producer.send(choices.choice([10, 1_000, 200_000]))
    for producer in producers:
        if not producer.is_open:
            producer.send(10)
    for producer in producers[:2]:
        producer.end(commit=False)


def fetched(client: RawClient, offset: int, max_bytes: int) -> OffsetAnswer:
    request = fetch_request("t", offset, max_bytes=max_bytes, is_committed=True)
    response = client.call(request, 11, FetchResponse)
    (data,) = response.responses[0].partitions
    return OffsetAnswer(offset, data)


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Left:
    directory = tmp_path_factory.mktemp("kafka")
    with KafkaServer(directory) as server:
        write(server)
        with RawClient(server.port) as client:
            answers = [fetched(client, 0, 50 * MIB)]
            high_watermark = answers[0].data.high_watermark
            answers += [
                fetched(client, offset, max_bytes)
                for offset in range(0, high_watermark + 1, 3)
                for max_bytes in (1, 200_000)
            ]
        data = server.data
    return Left(Path(shutil.copytree(data / "t-0", directory / "t-0")), answers)


@pytest.fixture
def copy(left: Left, tmp_path: Path) -> Left:
    return Left(Path(shutil.copytree(left.directory, tmp_path / "t-0")), left.answers)


def test_the_sample_has_what_matters(left: Left) -> None:
    assert len(left.files(".log")) > 2
    assert len(left.files(".txnindex")) > 1
    assert len(left.answers[0].aborted) > 5
    assert left.answers[0].data.last_stable_offset < left.answers[0].data.high_watermark


def test_the_stable_offset_is_the_kafka_s(copy: Left) -> None:
    log = copy.opened()
    data = copy.answers[0].data
    assert log.log_end_offset == data.high_watermark
    spans = log.producers.spans
    assert spans.last_stable_offset(log.log_end_offset, 0) == data.last_stable_offset


@pytest.mark.parametrize("is_made_again", [False, True])
def test_every_fetch_gets_the_aborted_transactions_that_the_kafka_lists(
    copy: Left, is_made_again: bool
) -> None:
    """And of these exactly those that have records in it; the Kafka lists some behind as well."""
    if is_made_again:
        for name in copy.files(".txnindex"):
            (copy.directory / name).unlink()
    log = copy.opened(clean=not is_made_again)
    more = 0
    for answer in copy.answers:
        stable = answer.data.last_stable_offset
        if not answer.headers:
            continue
        position, last = answer.headers[-1]
        read_bytes = position + last.size_bytes
        found = log.aborted.in_read(answer.offset, read_bytes, up_to_offset=stable)
        told = [(one.producer_id, one.first_offset) for one in found.at_once()]
        assert told == [one for one in answer.aborted if one[1] < last.next_offset]
        more += len(answer.aborted) - len(told)
    assert more > 0


def test_indexes_that_are_made_again_are_the_kafka_s_byte_for_byte(copy: Left) -> None:
    written = copy.files(".txnindex")
    for name in written:
        (copy.directory / name).unlink()
    copy.opened(clean=False).close()
    assert copy.files(".txnindex") == written


def test_producers_read_from_the_batches_are_those_of_the_kafka_s_snapshots(copy: Left) -> None:
    written = copy.files(".snapshot")
    for name in written:
        (copy.directory / name).unlink()
    copy.opened(clean=False).close()
    again = copy.files(".snapshot")
    assert len(again) == len(written) > 2
    for name, content in again.items():
        assert timeless(content) == timeless(written[name]), name


def timeless(content: bytes) -> list[ProducerSnapshot]:
    """Producers in order of their ids; a time is not on record in the batches."""
    return sorted(one._replace(timestamp=0) for one in decode_snapshot(content))
