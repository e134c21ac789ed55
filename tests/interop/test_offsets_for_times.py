"""Finding an offset by time, with every client library, and resetting a group by it."""

from datetime import UTC, datetime

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.tools import Tools
from tests.support.clients.model import AN_HOUR_AGO_MS, Client, Record
from tests.support.waiting import wait_until


def timed_records(count: int, partition: int = 0) -> list[Record]:
    """One record a second from AN_HOUR_AGO_MS on."""
    return [
        Record(b"%d" % number, timestamp_ms=AN_HOUR_AGO_MS + 1000 * number, partition=partition)
        for number in range(count)
    ]


def test_a_time_leads_to_the_first_record_at_or_after_it(
    client: Client, client_named: ClientNamed, create_topic: CreateTopic
) -> None:
    topic = create_topic(partitions=2)
    client_named("confluent").produce(topic, timed_records(20) + timed_records(5, partition=1))

    assert client.offsets_for_time(topic, AN_HOUR_AGO_MS - 1) == {0: 0, 1: 0}
    assert client.offsets_for_time(topic, AN_HOUR_AGO_MS + 3000) == {0: 3, 1: 3}
    assert client.offsets_for_time(topic, AN_HOUR_AGO_MS + 3001) == {0: 4, 1: 4}
    assert client.offsets_for_time(topic, AN_HOUR_AGO_MS + 7000) == {0: 7, 1: None}
    assert client.offsets_for_time(topic, AN_HOUR_AGO_MS + 60_000) == {0: None, 1: None}


def test_a_group_that_is_reset_by_time_reads_on_from_there(
    client: Client, client_named: ClientNamed, tools: Tools, topic: str, group: str
) -> None:
    client_named("confluent").produce(topic, timed_records(20))
    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) == 20, "everything read once")
    moment = datetime.fromtimestamp((AN_HOUR_AGO_MS + 12_000) / 1000, UTC)

    tools.consumer_groups(
        *("--group", group, "--topic", topic, "--reset-offsets", "--execute"),
        *("--to-datetime", moment.strftime("%Y-%m-%dT%H:%M:%S.000")),
    )

    with client.join(group, topic) as member:
        wait_until(lambda: len(member.records()) >= 8, "the rest read again")
    assert [record.value for record in member.records()] == [b"%d" % n for n in range(12, 20)]
