"""Reading the records of a topic: where to start, what is shown of each, and all bounds."""

import base64
from typing import Any

import pytest

from kohort.broker.console import topic_records
from kohort.broker.http.messages import BadRequestError, HttpResponse
from kohort.broker.runtime.slices import Slice
from kohort.protocol.records.batch import CompressionType, read_header
from kohort.protocol.records.builder import encode_batch
from kohort.protocol.records.control import ControlType
from kohort.protocol.records.record import Record
from tests.unit.broker.console.viewed_pages import LookedAt, looked_at

PATH = "/api/topics/t/records"


def append(
    broker: LookedAt,
    index: int,
    *records: Record,
    codec: CompressionType = CompressionType.NONE,
) -> None:
    partition = broker.topics.partition("t", index)
    assert partition is not None
    batch = encode_batch(list(records), codec=codec)
    partition.append(batch, read_header(batch), wall_ms=broker.clock.wall_ms())


def offsets(answer: Any) -> list[int]:  # noqa: ANN401 - as JSON has it.
    return [record["offset"] for record in answer["records"]]


def content(field: Any) -> bytes:  # noqa: ANN401 - as JSON has it.
    return base64.b64decode(field["base64"])


@pytest.mark.parametrize("codec", list(CompressionType))
async def test_a_record_is_shown_with_key_headers_and_time(codec: CompressionType) -> None:
    async with looked_at() as broker:
        record = Record(b"\x00value", b"key", (("h", b"1"), ("none", None)), 12_345)
        append(broker, 1, record, Record(None, None, (), 12_346), codec=codec)
        told = await broker.ask(PATH, "partition=1")
    second, first = told["records"]
    assert (first["partition"], first["offset"], first["timestamp_ms"]) == (1, 0, 12_345)
    assert (content(first["key"]), content(first["value"])) == (b"key", b"\x00value")
    assert [header["name"] for header in first["headers"]] == ["h", "none"]
    assert content(first["headers"][0]["value"]) == b"1"
    assert first["headers"][1]["value"] is None
    assert (second["key"], second["value"]) == (None, None)
    assert told["ranges"] == [{"partition": 1, "start": 0, "end": 2}]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("partition=0&limit=3", [9, 8, 7]),
        ("partition=0&limit=3&from=oldest", [0, 1, 2]),
        # In the middle of a batch.
        ("partition=0&limit=3&from=offset&at=6", [6, 7, 8]),
        ("partition=0&limit=3&from=offset&at=99", []),
        ("partition=0&limit=3&from=time&at=1004", [4, 5, 6]),
        ("partition=0&limit=3&from=time&at=5000", []),
    ],
)
async def test_reading_starts_where_it_is_wanted(query: str, expected: list[int]) -> None:
    async with looked_at() as broker:
        for start in (0, 5):
            append(broker, 0, *[Record(b"v", timestamp=1_000 + start + n) for n in range(5)])
        assert offsets(await broker.ask(PATH, query)) == expected


async def test_records_of_all_partitions_are_merged_by_time() -> None:
    async with looked_at() as broker:
        for index, at_ms in ((2, 1), (0, 2), (1, 3), (0, 4), (2, 5)):
            append(broker, index, Record(b"v", timestamp=at_ms))
        newest = await broker.ask(PATH, "limit=3")
        oldest = await broker.ask(PATH, "limit=3&from=oldest")
    times = [[record["timestamp_ms"] for record in told["records"]] for told in (newest, oldest)]
    assert times == [[5, 4, 3], [1, 2, 3]]


async def test_records_with_the_same_timestamp_are_in_the_order_of_their_offsets() -> None:
    async with looked_at() as broker:
        append(broker, 0, *[Record(b"v", timestamp=1) for _ in range(4)])
        assert offsets(await broker.ask(PATH, "limit=3")) == [3, 2, 1]
        assert offsets(await broker.ask(PATH, "limit=3&from=oldest")) == [0, 1, 2]


async def test_markers_of_transactions_are_not_records() -> None:
    async with looked_at() as broker:
        append(broker, 0, Record(b"v"))
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        partition.append_marker(
            1, 0, ControlType.COMMIT, coordinator_epoch=0, transaction_version=1, wall_ms=1
        )
        assert partition.high_watermark == 2
        assert offsets(await broker.ask(PATH, "partition=0&from=oldest")) == [0]


async def test_long_fields_are_cut_and_one_record_is_shown_whole() -> None:
    async with looked_at() as broker:
        long = bytes(topic_records.FIELD_BYTES + 1)
        many = tuple(("h", b"x") for _ in range(topic_records.HEADERS_MAX + 5))
        append(broker, 0, Record(long, long, many), Record(b"v"))
        cut, _ = (await broker.ask(PATH, "partition=0&from=oldest"))["records"]
        (whole,) = (await broker.ask(PATH, "partition=0&from=oldest&whole=yes"))["records"]
    for name in ("key", "value"):
        assert len(content(cut[name])) == topic_records.FIELD_BYTES
        assert cut[name]["size"] == len(long)
        assert content(whole[name]) == long
    assert (len(cut["headers"]), cut["header_count"]) == (topic_records.HEADERS_MAX, len(many))


async def test_a_batch_that_inflates_to_too_much_is_a_problem_and_not_an_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(topic_records, "INFLATED_BYTES_MAX", 1_000)
    async with looked_at() as broker:
        append(broker, 0, Record(bytes(5_000)), codec=CompressionType.GZIP)
        append(broker, 1, Record(b"v"))
        told = await broker.ask(PATH)
    assert [record["partition"] for record in told["records"]] == [1]
    (problem,) = told["problems"]
    assert "inflates to more than 1000 bytes" in problem


@pytest.mark.parametrize(
    "query",
    [
        "from=middle",
        "from=offset&at=1",
        "from=offset&partition=0",
        "partition=3",
        "partition=-1",
        "partition=0&from=offset&at=99999999999999999999999",
        "limit=201",
        "at=x&from=time",
    ],
)
async def test_what_is_malformed_or_too_much_is_a_bad_request(query: str) -> None:
    async with looked_at() as broker:
        with pytest.raises(BadRequestError):
            await broker.answer(PATH, query)


async def test_a_topic_that_does_not_exist_is_not_found() -> None:
    async with looked_at() as broker:
        answer = await broker.answer("/api/topics/none/records")
    assert isinstance(answer, HttpResponse)
    assert answer.status == 404


async def test_records_are_for_nobody_if_clients_must_authenticate_and_this_port_does_not() -> None:
    async with looked_at(is_open_to_anonymous=False) as broker:
        append(broker, 0, Record(b"v"))
        answer = await broker.answer(PATH)
        topic = await broker.answer("/api/topics/t")
    assert isinstance(answer, HttpResponse)
    assert isinstance(topic, HttpResponse)
    assert (answer.status, topic.status) == (403, 200)


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
async def test_a_batch_of_very_many_records_is_skipped_in_slices(
    codec: CompressionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    pauses = 0
    pause = Slice.pause

    async def counted(time_slice: Slice) -> None:
        nonlocal pauses
        pauses += 1
        await pause(time_slice)

    async with looked_at() as broker:
        append(broker, 0, *[Record(b"v")] * 3_000, codec=codec)
        monkeypatch.setattr(Slice, "pause", counted)
        told = await broker.ask(PATH, "partition=0&limit=1")
    assert offsets(told) == [2_999]
    assert pauses >= 3_000
