"""Administration of share groups with Kafka's own command line classes."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from confluent_kafka import ShareConsumer

from tests.interop.conftest import ClientNamed, CreateTopic
from tests.interop.tools import Tools
from tests.support.clients.confluent_client import QUIET
from tests.support.clients.model import Record
from tests.support.waiting import wait_until


@contextmanager
def sharing(bootstrap: str, group: str, topic: str) -> Iterator[ShareConsumer]:
    with ShareConsumer({"bootstrap.servers": bootstrap, "group.id": group, **QUIET}) as consumer:
        consumer.subscribe([topic])
        yield consumer


@pytest.fixture
def topic(tools: Tools, client_named: ClientNamed, create_topic: CreateTopic, group: str) -> str:
    """A topic of ten records, which the group reads from the beginning."""
    set_config(tools, group, "--add-config", "share.auto.offset.reset=earliest")
    name = create_topic()
    client_named("confluent").produce(name, [Record(b"%d" % number) for number in range(10)])
    return name


def set_config(tools: Tools, group: str, *change: str) -> None:
    tools.configs("--alter", "--entity-type", "groups", "--entity-name", group, *change)


def read_all(bootstrap: str, group: str, topic: str) -> None:
    """Read and accept ten records."""
    with sharing(bootstrap, group, topic) as consumer:
        seen: list[int | None] = []

        def is_everything() -> bool:
            seen.extend(message.offset() for message in consumer.poll(1.0))
            return len(seen) >= 10

        wait_until(is_everything, "ten records")
        consumer.commit_sync(10.0)
    assert seen == list(range(10))


def test_a_share_group_is_listed_and_described(
    bootstrap: str, tools: Tools, group: str, topic: str
) -> None:
    with sharing(bootstrap, group, topic) as consumer:
        wait_until(lambda: bool(consumer.poll(1.0)), "records")
        listed = tools.share_groups("--list", "--state")
        state = tools.share_groups("--describe", "--state", "--verbose", "--group", group)
        members = tools.share_groups("--describe", "--members", "--verbose", "--group", group)
    assert re.search(rf"^{group}\s+Stable\s*$", listed, re.MULTILINE)
    assert re.search(rf"^{group}\s+\S+ +\(\d+\)\s+Stable\s.*\s1\s*$", state, re.MULTILINE)
    assert re.search(rf"^{group}\s+\S+\s+/127\.0\.0\.1\s.*{topic}:0\s*$", members, re.MULTILINE)
    assert group in tools.share_groups("--list").splitlines()


def test_start_offsets_are_shown_reset_and_deleted(
    bootstrap: str, tools: Tools, group: str, topic: str
) -> None:
    read_all(bootstrap, group, topic)
    of_topic = ("--group", group, "--topic", topic)
    shown = tools.share_groups("--describe", "--group", group)
    assert re.search(rf"^{group}\s+{topic}\s+0\s+\d+\s+0\s*$", shown, re.MULTILINE)
    planned = tools.share_groups("--reset-offsets", *of_topic, "--to-earliest", "--dry-run")
    assert re.search(rf"^{group}\s+{topic}\s+0\s+0\s*$", planned, re.MULTILINE)
    tools.share_groups("--reset-offsets", *of_topic, "--to-earliest", "--execute")
    shown = tools.share_groups("--describe", "--group", group)
    assert re.search(rf"^{group}\s+{topic}\s+0\s+0\s+10\s*$", shown, re.MULTILINE)
    read_all(bootstrap, group, topic)
    deleted = tools.share_groups("--delete-offsets", *of_topic)
    assert re.search(rf"^{topic}\s+Successful\s*$", deleted, re.MULTILINE)
    assert topic not in tools.share_groups("--describe", "--group", group)
    said = tools.share_groups("--delete", "--group", group)
    assert f"('{group}') was successful" in said
    assert group not in tools.share_groups("--list").splitlines()


def test_configs_of_a_share_group_are_set_and_shown(tools: Tools, group: str) -> None:
    of_group = ("--entity-type", "groups", "--entity-name", group)
    configs = "share.delivery.count.limit=3,share.isolation.level=read_committed"
    set_config(tools, group, "--add-config", configs)
    shown = tools.configs("--describe", *of_group)
    assert "share.delivery.count.limit=3 " in shown
    assert "share.isolation.level=read_committed " in shown
    set_config(tools, group, "--delete-config", "share.delivery.count.limit")
    assert "share.delivery.count.limit=3 " not in tools.configs("--describe", *of_group)
