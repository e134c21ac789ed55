"""Kafka's command line classes that ask a cluster about itself, against a cluster of one broker."""

import json
import re
import uuid
from pathlib import Path

import pytest

from tests.interop.conftest import CreateTopic
from tests.interop.tools import Tools

LEADER_ELECTION = "org.apache.kafka.tools.LeaderElectionCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
QUORUM = "org.apache.kafka.tools.MetadataQuorumCommand"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
ACLS = "org.apache.kafka.tools.AclCommand"


@pytest.fixture
def topic(create_topic: CreateTopic) -> str:
    return create_topic(partitions=2)


def test_leaders_are_those_that_would_be_elected(tools: Tools, topic: str) -> None:
    preferred = ("--election-type", "preferred")
    told = tools.run(LEADER_ELECTION, *preferred, "--topic", topic, "--partition", "1")
    assert f"Valid replica already elected for partitions {topic}-1" in told
    tools.run(LEADER_ELECTION, *preferred, "--all-topic-partitions")
    missing = tools.attempt(LEADER_ELECTION, *preferred, "--topic", topic, "--partition", "9")
    assert missing.exit == 1
    assert "UnknownTopicOrPartitionException" in missing.out + missing.err


def test_partitions_are_reassigned_to_the_broker_that_has_them(
    tools: Tools, topic: str, tmp_path: Path
) -> None:
    wanted = tmp_path / "topics.json"
    wanted.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    generated = tools.run(
        REASSIGN, "--generate", "--broker-list", "1", "--topics-to-move-json-file", str(wanted)
    )
    plan = tmp_path / "plan.json"
    plan.write_text(generated.strip().splitlines()[-1])
    tools.run(
        REASSIGN, "--execute", "--reassignment-json-file", str(plan), "--throttle", "50000000"
    )
    verified = tools.run(REASSIGN, "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed." in verified
    assert f"Reassignment of partition {topic}-1 is completed." in verified
    assert "Clearing broker-level throttles on broker 1" in verified
    assert "No partition reassignments found." in tools.run(REASSIGN, "--list")


def test_the_metadata_has_one_keeper(tools: Tools) -> None:
    status = tools.run(QUORUM, "describe", "--status")
    assert re.search(r"LeaderId:\s+1\b", status)
    assert re.search(r"MaxFollowerLag:\s+0\b", status)
    replication = tools.run(QUORUM, "describe", "--replication")
    assert re.search(r"^1\s.*\sLeader", replication, re.MULTILINE)


def test_features_are_described_and_not_changed(tools: Tools) -> None:
    tools.run(FEATURES, "describe")
    change = tools.attempt(FEATURES, "upgrade", "--feature", "no.such.feature=1")
    assert change.exit == 1
    assert "no.such.feature" in change.out + change.err


def test_there_are_no_rules_without_an_authorizer(tools: Tools) -> None:
    for arguments in (
        ("--list",),
        ("--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "t"),
        ("--remove", "--force", "--allow-principal", "User:a", "--topic", "t"),
    ):
        told = tools.attempt(ACLS, *arguments)
        assert "SecurityDisabledException" in told.out + told.err


def test_a_broker_setting_is_changed_and_described(tools: Tools) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "1")
    for name, value in (("num.io.threads", "9"), ("log.cleaner.backoff.ms", "14000")):
        tools.configs(*broker, "--alter", "--add-config", f"{name}={value}")
        described = tools.configs(*broker, "--describe")
        assert f"{name}={value} sensitive=false" in described
        tools.configs(*broker, "--alter", "--delete-config", name)
        assert f"{name}=" not in tools.configs(*broker, "--describe")
    assert "queued.max.requests=500" in tools.configs(*broker, "--describe", "--all")


def test_topics_are_listed_with_their_configs(tools: Tools, topic: str) -> None:
    assert f"topic {topic}" in tools.configs("--entity-type", "topics", "--describe")
    tools.configs("--entity-type", "client-metrics", "--describe")
    nobody = uuid.uuid4().hex
    tools.configs("--entity-type", "client-metrics", "--entity-name", nobody, "--describe")
