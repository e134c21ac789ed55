"""Settings of Kafka's clients, as the jobs read them."""

from argparse import ArgumentParser
from pathlib import Path

from kohort.pipeline.options import add_kafka, kafka_of


def test_settings_are_read_from_the_file_and_then_from_the_options(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# A comment.\n\nkafka.client.id = one\nsecurity.protocol=SSL\n")
    parser = ArgumentParser()
    add_kafka(parser)
    options = parser.parse_args(
        ["--bootstrap-server", "broker:1", "--kafka-config", str(file), "--kafka", "client.id= two"]
    )
    assert kafka_of(options).connector_options() == {
        "kafka.bootstrap.servers": "broker:1",
        "kafka.client.id": "two",
        "kafka.security.protocol": "SSL",
    }
