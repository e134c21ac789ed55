"""A partition that a real Kafka wrote in several leader epochs is copied to a Kohort and goes on.

Java's consumer compares epochs (KIP-320): it turns to no leader whose epoch is an earlier one than
that of its position, and asks where the epochs before ended.
"""

import shutil
from pathlib import Path

import pytest
from confluent_kafka.admin import NewTopic

from tests.support.brokers.kafka_server import KafkaServer
from tests.support.brokers.kohort_server import KohortServer
from tests.support.brokers.server_process import ServerProcess
from tests.support.clients.confluent_client import (
    ConfluentClient,
    ConfluentMember,
    admin_client,
    create_topics,
)
from tests.support.clients.java_client import JavaMember
from tests.support.clients.model import ANY_SEAT, Member, Record
from tests.support.processes.java_process import JavaProcess
from tests.support.waiting import wait_until

TOPIC = "epochs"
COUNT = 10


def produce(server: ServerProcess) -> None:
    ConfluentClient(server.bootstrap).produce(
        TOPIC, [Record(b"%d" % number, partition=0) for number in range(COUNT)]
    )


def leave_three_epochs(kafka: KafkaServer) -> Path:
    """Each start of the only broker is a new one; where the partition is."""
    for start in range(3):
        with kafka:
            admin = admin_client(kafka.bootstrap)
            if not start:
                create_topics(admin, NewTopic(TOPIC, 1, 1))
            produce(kafka)
    return kafka.data / f"{TOPIC}-0"


def read(member: Member, count: int) -> None:
    """So many records, no more, and commit them."""
    with member:
        wait_until(lambda: len(member.records()) >= count, f"{count} records to be read")
    assert len(member.records()) == count


@pytest.mark.long
def test_members_read_and_commit_across_the_epochs_and_after_a_restart(
    tmp_path: Path, java_clients: JavaProcess
) -> None:
    left = leave_three_epochs(KafkaServer(tmp_path / "kafka"))
    _, count, *epochs = (left / "leader-epoch-checkpoint").read_text().splitlines()
    assert int(count) == 3
    kohort = KohortServer(tmp_path / "kohort")
    shutil.copytree(left, kohort.data / left.name)
    for unread in (4 * COUNT, COUNT):
        with kohort:
            produce(kohort)
            read(JavaMember(java_clients, kohort.bootstrap, "java", TOPIC, ANY_SEAT), unread)
            read(ConfluentMember(kohort.bootstrap, "confluent", TOPIC, ANY_SEAT), unread)
    kept = (kohort.data / left.name / "leader-epoch-checkpoint").read_text().splitlines()
    assert kept[2:] == epochs
