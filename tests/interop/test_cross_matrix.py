"""Whatever one client library writes, every other one reads, in every codec.

Each producer writes one topic per codec, once for the whole module; each consumer reads it.
"""

import time
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.interop.conftest import CLIENT_NAMES, ClientNamed
from tests.interop.test_produce_consume import letters
from tests.support.clients.confluent_client import create_topics
from tests.support.clients.model import AN_HOUR_AGO_MS, CODECS, Client, Codec, Record, content

RECORDS = [
    Record(b"value", key=b"key", timestamp_ms=AN_HOUR_AGO_MS + 1),
    Record(b"no key", timestamp_ms=AN_HOUR_AGO_MS + 2),
    Record(b"", key=b"empty", timestamp_ms=AN_HOUR_AGO_MS + 3),
    Record(None, key=b"tombstone", timestamp_ms=AN_HOUR_AGO_MS + 4),
    Record(b"h", key=b"h", headers=(("a", b"1"), ("b", b"2"), ("a", b"3"))),
    Record(letters(5000, 1), key=letters(100, 2)),
    Record("Gr\u00fc\u00dfe, \u4e16\u754c".encode(), key="Schl\u00fcssel".encode()),
    *(Record(b"%d" % number * 20, key=b"%d" % number) for number in range(100)),
]


@dataclass(frozen=True)
class Written:
    topic: str
    started_ms: int
    finished_ms: int


_written: dict[tuple[str, str, Codec], Written] = {}


def write_once(client: Client, admin: AdminClient, codec: Codec) -> Written:
    """The topic that this client has filled with `RECORDS`, now or for an earlier test."""
    place = (client.bootstrap, client.name, codec)
    if place not in _written:
        topic = f"interop-matrix-{client.name}-{codec}-{time.time_ns()}"
        create_topics(admin, NewTopic(topic, 1, 1))
        started = int(time.time() * 1000)
        client.produce(topic, RECORDS, codec=codec)
        _written[place] = Written(topic, started, int(time.time() * 1000))
    return _written[place]


def _cases() -> Iterator[object]:
    """Each pair of clients in each codec; in the short form a Latin square of them."""
    for (row, writer), (column, reader) in product(enumerate(CLIENT_NAMES), repeat=2):
        for number, codec in enumerate(CODECS):
            is_short = number == (row + column) % len(CODECS)
            yield pytest.param(writer, reader, codec, marks=() if is_short else pytest.mark.long)


@pytest.mark.parametrize(("writer", "reader", "codec"), list(_cases()))
def test_what_one_client_wrote_another_reads(
    client_named: ClientNamed, admin: AdminClient, writer: str, reader: str, codec: Codec
) -> None:
    producer = client_named(writer)
    written = write_once(producer, admin, codec)

    received = client_named(reader).consume(written.topic, len(RECORDS))

    assert [content(record) for record in received] == [content(record) for record in RECORDS]
    assert [record.offset for record in received] == list(range(len(RECORDS)))
    for got, sent in zip(received, RECORDS, strict=True):
        assert got.timestamp_ms is not None
        if sent.timestamp_ms is not None:
            assert got.timestamp_ms == sent.timestamp_ms
        else:
            assert written.started_ms <= got.timestamp_ms <= written.finished_ms
