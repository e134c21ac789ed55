"""Every client library by itself: what it writes, it reads back."""

import os
import random
import string
import time

import pytest

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.produce import ProduceResponse
from kohort.protocol.records import record as kohort_record
from kohort.protocol.records.batch import HEADER_BYTES, read_header
from kohort.protocol.records.builder import assemble, encode_batch
from tests.interop.conftest import CreateTopic, few_clients
from tests.interop.same_answers.scenes import Topic, produce_request
from tests.support.clients.model import AN_HOUR_AGO_MS, CODECS, Client, Codec, Record
from tests.support.network.wire import RawClient
from tests.support.records.compressed_forms import FORMS, Readers


def letters(count: int, seed: int) -> bytes:
    """Text that no codec shrinks to nothing."""
    return "".join(random.Random(seed).choices(string.ascii_letters, k=count)).encode()


few_codecs = pytest.mark.parametrize(
    "codec",
    [
        pytest.param(codec, marks=() if codec in ("none", "zstd") else pytest.mark.long)
        for codec in CODECS
    ],
)
"""What each client does with each codec is in test_cross_matrix.py."""


@few_clients
@few_codecs
def test_a_record_of_one_megabyte_comes_back_whole(
    client: Client, topic: str, codec: Codec
) -> None:
    value = letters(1_000_000, 3)

    client.produce(topic, [Record(value), Record(b"after it")], codec=codec)

    assert [record.value for record in client.consume(topic, 2)] == [value, b"after it"]


def test_every_accepted_form_of_a_compressed_block_is_read(
    client: Client, topic: str, bootstrap: str
) -> None:
    """Kafka also keeps some that only Java reads."""
    kept_readable = {Readers.ALL} if "BOOTSTRAP" in os.environ else {Readers.ALL, Readers.SOME}
    forms = [
        form
        for form in FORMS
        if form.readers in kept_readable
        # aiokafka compares all of a xerial header.
        and not (client.name == "aiokafka" and "version" in form.name)
    ]
    values = [letters(300, 4), letters(100, 5) * 20]
    with RawClient(int(bootstrap.rpartition(":")[2])) as producer:
        for form in forms:
            records = [kohort_record.Record(value, key=form.name.encode()) for value in values]
            plain = encode_batch(records)
            header = read_header(plain)._replace(attributes=int(form.codec))
            batch = assemble(header, form.compress(plain[HEADER_BYTES:]))
            request = produce_request(Topic(topic, bytes(16)), batch)
            answer = producer.call(request, 9, ProduceResponse)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE, form

    received = client.consume(topic, len(forms) * len(values))

    assert [(record.key, record.value) for record in received] == [
        (form.name.encode(), value) for form in forms for value in values
    ]


@few_clients
def test_a_topic_with_log_append_time_stamps_records_with_the_time_of_arrival(
    client: Client, create_topic: CreateTopic
) -> None:
    topic = create_topic(message_timestamp_type="LogAppendTime")
    before = int(time.time() * 1000)
    client.produce(topic, [Record(b"one", timestamp_ms=AN_HOUR_AGO_MS), Record(b"two")])
    after = int(time.time() * 1000)

    stamps = [record.timestamp_ms for record in client.consume(topic, 2)]

    assert all(stamp is not None and before <= stamp <= after for stamp in stamps)


@few_clients
def test_records_go_to_the_partitions_that_were_named(
    client: Client, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=3)
    sent = [Record(b"%d" % number, partition=number % 3) for number in range(30)]
    client.produce(topic, sent)

    received = client.consume(topic, len(sent))

    for partition in range(3):
        values = [record.value for record in received if record.partition == partition]
        assert values == [b"%d" % number for number in range(partition, 30, 3)]


@few_clients
def test_equal_keys_meet_in_one_partition(client: Client, create_topic: CreateTopic) -> None:
    topic = create_topic(partitions=4)
    sent = [
        Record(b"%d" % number, key=b"key %d" % (number % 7), partition=None) for number in range(70)
    ]
    client.produce(topic, sent)

    received = client.consume(topic, len(sent))

    assert len(received) == len(sent)
    homes = {(record.key, record.partition) for record in received}
    assert len(homes) == 7


@few_clients
@few_codecs
def test_an_idempotent_producer_leaves_each_record_once_and_in_order(
    client: Client, topic: str, codec: Codec
) -> None:
    sent = [Record(b"%d" % number) for number in range(2000)]

    client.produce(topic, sent, codec=codec, idempotent=True)
    client.produce(topic, sent, codec=codec, idempotent=True)

    received = client.consume(topic, 2 * len(sent))
    assert [record.value for record in received] == 2 * [record.value for record in sent]
