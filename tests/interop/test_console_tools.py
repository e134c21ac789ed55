"""Kafka's console producer and consumer, and their other direction with Python clients."""

from tests.interop.conftest import ClientNamed
from tests.interop.tools import Tools
from tests.support.clients.model import AN_HOUR_AGO_MS, Record


def test_lines_go_in_and_come_out_of_the_console(tools: Tools, topic: str) -> None:
    tools.console_producer("--topic", topic, stdin="one\ntwo\nthree\n")

    shown = tools.console_consumer(
        *("--topic", topic, "--from-beginning", "--max-messages", "3", "--timeout-ms", "20000")
    )

    assert shown.splitlines() == ["one", "two", "three"]


def test_the_console_producer_sends_keys_headers_and_tombstones_to_a_python_client(
    tools: Tools, client_named: ClientNamed, topic: str
) -> None:
    tools.console_producer(
        *("--topic", topic, "--compression-codec", "zstd"),
        *("--reader-property", "parse.key=true", "--reader-property", "parse.headers=true"),
        *("--reader-property", "null.marker=NULL"),
        stdin="h1:a,h2:b\tkey\tvalue\nh1:c\tgone\tNULL\n",
    )

    first, second = client_named("aiokafka").consume(topic, 2)

    assert (first.key, first.value) == (b"key", b"value")
    assert first.headers == (("h1", b"a"), ("h2", b"b"))
    assert (second.key, second.value) == (b"gone", None)


def test_the_console_consumer_shows_what_a_python_client_sent(
    tools: Tools, client_named: ClientNamed, topic: str
) -> None:
    sent = Record(b"value", key=b"key", headers=(("trace", b"abc"),), timestamp_ms=AN_HOUR_AGO_MS)
    client_named("kafka-python").produce(topic, [sent], codec="snappy")

    shown = tools.console_consumer(
        *("--topic", topic, "--from-beginning", "--max-messages", "1", "--timeout-ms", "20000"),
        *(
            option
            for name in ("timestamp", "key", "offset", "partition", "headers")
            for option in ("--formatter-property", f"print.{name}=true")
        ),
    )

    fields = shown.strip().split("\t")
    assert fields == [
        f"CreateTime:{AN_HOUR_AGO_MS}",
        "Partition:0",
        "Offset:0",
        "trace:abc",
        "key",
        "value",
    ]


def test_the_console_consumer_reads_on_with_its_group(tools: Tools, topic: str, group: str) -> None:
    def read(count: int) -> list[str]:
        return tools.console_consumer(
            *("--topic", topic, "--group", group, "--from-beginning"),
            *("--max-messages", str(count), "--timeout-ms", "20000"),
        ).splitlines()

    tools.console_producer("--topic", topic, stdin="1\n2\n3\n4\n5\n")

    assert read(2) == ["1", "2"]
    assert read(3) == ["3", "4", "5"]
