"""A directory goes to Kafka and comes back, without a Kafka.

What changes, what is refused, and what a crash on the way leaves.
"""

import json
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

import pytest

from kohort.broker.config.network import parse_endpoints
from kohort.broker.core.security.acls import rule_of
from kohort.broker.core.security.sasl import Credential
from kohort.broker.kafka_directory.exporting import (
    ExportPlan,
    carry_out_export,
    plan_export,
    settings_for_kafka,
)
from kohort.broker.kafka_directory.image import ClusterImage, records_of
from kohort.broker.kafka_directory.importing import ImportPlan, carry_out_import, plan_import
from kohort.broker.kafka_directory.metadata_files import (
    BOOTSTRAP,
    DIRECTORY,
    MetaProperties,
    encode_meta_properties,
    parse_meta_properties,
    write_first_snapshot,
)
from kohort.broker.kafka_directory.releases import KAFKA_3_9, KAFKA_4_4, Release
from kohort.broker.security.client_quotas import CLIENT_QUOTA
from kohort.broker.security.rules import property_of as property_of_rule
from kohort.broker.security.users import CredentialKey, credential_text, property_of
from kohort.broker.storage.filesystem import OS_FILES
from kohort.broker.storage.layout import KAFKA_FILE
from kohort.broker.storage.metadata.database import Content, MetadataDatabase
from kohort.broker.storage.metadata.store import FILE_NAME, MIRROR_FILE_NAME, MetadataStore
from kohort.broker.topics.creation import NewTopic
from kohort.broker.topics.names import CONSUMER_OFFSETS
from kohort.cli import main
from kohort.protocol.messages.cluster_metadata import RegisterBrokerRecord
from kohort.protocol.scram import Keys
from tests.support.brokers.running_topics import append, running_topics

USER = property_of(CredentialKey("zoë", "SCRAM-SHA-256"))
RULE = property_of_rule(rule_of(2, "orders", 3, "User:a", "*", 3, 3))
QUOTA = CLIENT_QUOTA + json.dumps([["user", None]])
PROPERTIES = {
    USER: credential_text(Credential(b"salt", Keys(b"stored", b"server"), 4096)),
    RULE: "",
    QUOTA: json.dumps({"producer_byte_rate": 1000.0}),
}


@pytest.fixture
async def root(tmp_path: Path) -> Path:
    """A data directory after a clean stop, with something of everything."""
    async with running_topics(tmp_path) as topics:
        await topics.changes.create_topics(
            [
                NewTopic(name="orders", partition_count=3, configs={"retention.ms": "1000000"}),
                NewTopic(name="untouched", partition_count=2),
            ]
        )
        orders = topics.get("orders")
        assert orders is not None
        for partition in range(2):
            append(orders.partitions[partition], b"value of %d" % partition)
        topics.next_producer_id()
        store = topics.disk.data.store
        store.set_properties(PROPERTIES)
        store.set_broker_configs("", {"message.max.bytes": "99999"})
        store.set_broker_configs("1", {"log.retention.ms": "77777"})
    return tmp_path


def new_id() -> bytes:
    return uuid.uuid4().bytes


def silent(_what: str, _done: int, _total: int) -> None:
    pass


def planned_export(root: Path, release: Release = KAFKA_4_4) -> ExportPlan:
    return plan_export(OS_FILES, root, node_id=1, new_id=new_id, report=silent, release=release)


def export(root: Path, release: Release = KAFKA_4_4) -> None:
    carry_out_export(OS_FILES, planned_export(root, release), now_ms=1, report=silent)


def planned_import(root: Path) -> ImportPlan:
    return plan_import(OS_FILES, root, None, now_ms=5, report=silent)


def bring_back(root: Path) -> None:
    plan = planned_import(root)
    assert plan.problems == []
    carry_out_import(OS_FILES, plan, report=silent)


def content_of(path: Path) -> Content:
    database = MetadataDatabase(path)
    try:
        return database.read()
    finally:
        database.close()


def logs(root: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.glob("*-*/0*")
        if DIRECTORY not in str(path)
    }


def checksums(root: Path) -> list[Path]:
    return list(root.rglob("*.crc"))


async def test_a_directory_that_went_to_kafka_and_back_is_what_it_was(root: Path) -> None:
    before, records = content_of(root / FILE_NAME), logs(root)
    export(root)
    assert not (root / FILE_NAME).exists()
    assert logs(root) == records
    assert checksums(root) == []
    bring_back(root)
    after = content_of(root / FILE_NAME)
    assert logs(root) == records
    assert {(one.topic_id, one.name, one.partition_count) for one in after.topics} == {
        (one.topic_id, one.name, one.partition_count) for one in before.topics
    }
    assert [one.configs for one in after.topics] == [one.configs for one in before.topics]
    own = {"changes", "installation_secret"}
    assert {name: text for name, text in after.properties.items() if name not in own} == {
        name: text for name, text in before.properties.items() if name not in own
    }
    async with running_topics(root) as topics:
        orders = topics.get("orders")
        assert orders is not None
        assert [one.log.log_end_offset for one in orders.partitions] == [1, 1, 0]
    assert (root / MIRROR_FILE_NAME).exists()


async def test_it_can_go_again_and_again(root: Path) -> None:
    for release in (KAFKA_4_4, KAFKA_3_9, KAFKA_3_9, KAFKA_4_4):
        export(root, release)
        bring_back(root)
    async with running_topics(root) as topics:
        assert {topic.name for topic in topics.all()} >= {"orders", "untouched"}


async def test_a_plan_changes_nothing(root: Path) -> None:
    def state() -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in root.rglob("*") if path.is_file()}

    before = state()
    planned_export(root)
    assert state() == before
    export(root)
    before = state()
    planned_import(root)
    assert state() == before


async def test_settings_say_what_kafka_needs(root: Path) -> None:
    lines = settings_for_kafka(planned_export(root))
    assert "node.id=1" in lines
    assert f"log.dirs={root}" in lines
    assert any(line.startswith("authorizer.class.name=") for line in lines)
    assert "controller.quorum.voters=1@localhost:9093" in lines
    assert "listeners=PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093" in lines


@pytest.mark.parametrize(
    ("controller", "voter"),
    [
        ("[::1]:7", "[::1]:7"),
        ("k:19093", "k:19093"),
        (":7", "localhost:7"),
        ("[::]:7", "localhost:7"),
    ],
)
async def test_settings_have_the_listeners_that_one_wants(
    root: Path, controller: str, voter: str
) -> None:
    wanted = ["SSL://k:19092", f"CONTROLLER://{controller}"]
    lines = settings_for_kafka(planned_export(root), parse_endpoints(wanted))
    assert f"listeners={','.join(wanted)}" in lines
    assert f"controller.quorum.voters=1@{voter}" in lines


def test_listeners_without_a_controller_s_are_a_mistake(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for wanted, why in (
        ("PLAINTEXT://k:1", "expected a listener named CONTROLLER"),
        ("CONTROLLER://k:1", "and one for clients"),
        ("PLAINTEXT://k", "not of the form NAME://host:port"),
    ):
        with pytest.raises(SystemExit, match="2"):
            main(["export-kafka", str(root), "--listeners", wanted])
        assert why in capsys.readouterr().err


async def test_the_command_counts_internal_topics(
    root: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with running_topics(root) as topics:
        await topics.changes.create_topic(CONSUMER_OFFSETS, partition_count=1)
    assert main(["export-kafka", str(root), "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("topics: 3, 1 of them internal\npartitions: 6\n")


@pytest.mark.parametrize(
    ("spoil", "why"),
    [
        (lambda root: (root / ".kafka_cleanshutdown").unlink(), "not stopped cleanly"),
        (lambda root: (root / "holiday pictures").mkdir(), "Kafka would not start"),
        (lambda root: (root / KAFKA_FILE).touch(), "it is a Kafka data directory"),
        (lambda root: (root / FILE_NAME).unlink(), "not a Kohort data directory"),
        (lambda root: (root / FILE_NAME).write_bytes(b"not a database"), "start Kohort once more"),
        (
            lambda root: (root / "orders-0" / "partition.metadata").write_text(
                "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA"
            ),
            "another topic",
        ),
    ],
    ids=["unclean", "stranger", "twice", "empty", "damaged", "id"],
)
async def test_what_would_go_wrong_is_refused_before_anything_changes(
    root: Path, spoil: Callable[[Path], object], why: str
) -> None:
    spoil(root)
    problems = planned_export(root).problems
    assert any(why in problem for problem in problems), problems


async def test_databases_that_differ_are_refused(root: Path) -> None:
    (root / FILE_NAME).unlink()
    MetadataStore(root, new_cluster_id="other").close()
    shutil.copy(root / MIRROR_FILE_NAME, root / "kept")
    database = MetadataDatabase(root / FILE_NAME)
    database.change([("DELETE FROM topics", ())])
    database.close()
    assert any("differ" in one for one in planned_export(root).problems)


async def test_settings_of_ours_alone_are_told_to_be_left(root: Path) -> None:
    async with running_topics(root) as topics:
        topics.disk.data.store.set_broker_configs("", {"kohort.log.level": "DEBUG"})
    left = planned_export(root).left
    assert left == ["setting kohort.log.level: Kafka has none of that name"]


async def test_an_id_that_is_missing_is_written(root: Path) -> None:
    path = root / "orders-1" / "partition.metadata"
    before = path.read_bytes()
    path.unlink()
    export(root)
    assert path.read_bytes() == before


class CutError(Exception):
    """The power has gone."""


class CutFiles:
    """The file system until a number of changes has been made."""

    def __init__(self, changes: int) -> None:
        self._left = changes

    def __getattr__(self, name: str) -> object:
        if name in {"create", "rename", "sync_directory", "remove"}:
            self._left -= 1
            if self._left < 0:
                raise CutError
        return getattr(OS_FILES, name)


@pytest.mark.parametrize(
    "changes",
    [pytest.param(n, marks=[] if n in {1, 5, 6} else [pytest.mark.long]) for n in range(12)],
)
async def test_a_directory_always_has_an_owner_whatever_is_cut_short(
    root: Path, changes: int
) -> None:
    """Before it has meta.properties it is Kohort's, with it Kafka's; what was cut is done again."""
    plan = planned_export(root)
    try:
        carry_out_export(CutFiles(changes), plan, now_ms=1, report=silent)  # type: ignore[arg-type]
    except CutError:
        if not (root / KAFKA_FILE).exists():
            async with running_topics(root) as topics:
                assert {one.name for one in topics.all()} >= {"orders", "untouched"}
            export(root)
    assert planned_import(root).problems == []
    try:
        carry_out_import(CutFiles(changes), planned_import(root), report=silent)  # type: ignore[arg-type]
    except CutError:
        if (root / KAFKA_FILE).exists():
            bring_back(root)
    async with running_topics(root) as topics:
        orders = topics.get("orders")
        assert orders is not None
        assert [one.log.log_end_offset for one in orders.partitions] == [1, 1, 0]


def kafka_of(root: Path, image: ClusterImage, *brokers: int) -> None:
    """A directory as a Kafka leaves it whose controller knows these brokers."""
    shutil.rmtree(root / DIRECTORY)
    registered = [
        RegisterBrokerRecord(
            broker_id=one,
            incarnation_id=bytes(16),
            broker_epoch=1,
            end_points=[],
            features=[],
            rack=None,
        )
        for one in brokers
    ]
    write_first_snapshot(OS_FILES, root, [*records_of(image), *registered], now_ms=1)


async def test_what_is_not_all_of_a_cluster_is_refused(root: Path) -> None:
    export(root)
    image = planned_import(root).image
    (orders,) = (one for one in image.topics.values() if one.name == "orders")
    orders.partitions[0].replicas = [1, 2]
    orders.partitions[1].directories = [bytes(range(16))]
    image.configs[2, "untouched"] = {"remote.storage.enable": "true"}
    kafka_of(root, image, 1, 2)
    problems = " ".join(planned_import(root).problems)
    for why in ("other brokers: 2", "orders-0", "log.dirs: orders-1", "untouched"):
        assert why in problems


async def test_what_cannot_be_carried_back_is_told(root: Path) -> None:
    export(root)
    image = planned_import(root).image
    image.configs[2, "orders"] = {"retention.ms": "5", "of.a.later.kafka": "1"}
    image.configs[32, "readers"] = {
        "streams.session.timeout.ms": "45000",
        "share.session.timeout.ms": "45000",
    }
    image.quotas[(("ip", "10.0.0.1"),)] = {"connection_creation_rate": 5.0}
    image.quotas[(("user", "a"),)] = {"of_a_later_kafka": 5.0}
    kafka_of(root, image, 1)
    left = planned_import(root).left
    assert [one.split(":")[0] for one in left] == [
        "config of.a.later.kafka of topic orders",
        "config streams.session.timeout.ms of group readers",
        "quotas of user a",
    ]


async def test_a_snapshot_without_an_end_is_refused(root: Path) -> None:
    export(root)
    (path,) = (root / DIRECTORY).iterdir()
    path.write_bytes(path.read_bytes()[:-75])
    assert "without a footer" in " ".join(planned_import(root).problems)


async def test_the_log_of_the_controllers_may_be_elsewhere(root: Path, tmp_path: Path) -> None:
    export(root)
    elsewhere = tmp_path / "elsewhere-0"
    elsewhere.mkdir()
    (root / DIRECTORY).rename(elsewhere / DIRECTORY)
    assert "--metadata-log-dir" in " ".join(planned_import(root).problems)
    found = plan_import(OS_FILES, root, elsewhere, now_ms=1, report=silent)
    assert found.problems == []


def set_aside(root: Path, name: str) -> list[bytes]:
    return [path.read_bytes() for path in root.glob(f"{name}.*-stray")]


async def test_what_an_earlier_kafka_began_with_is_set_aside(root: Path) -> None:
    for change_hands in (export, bring_back):
        (root / BOOTSTRAP).write_bytes(b"of an earlier cluster")
        change_hands(root)
        assert not (root / BOOTSTRAP).exists()
    assert set_aside(root, BOOTSTRAP) == [b"of an earlier cluster"] * 2


async def test_kafka_3_9_begins_with_a_file_beside_its_directory(root: Path) -> None:
    export(root, KAFKA_3_9)
    assert (root / BOOTSTRAP).exists()
    assert list((root / DIRECTORY).iterdir()) == []


async def test_leader_epochs_go_on_where_kafkas_ended(root: Path) -> None:
    export(root)
    image = planned_import(root).image
    for topic in image.topics.values():
        for partition in topic.partitions.values():
            partition.leader_epoch = 7
    kafka_of(root, image, 1)
    bring_back(root)
    async with running_topics(root) as topics:
        orders = topics.get("orders")
        assert orders is not None
        assert orders.partitions[2].leader_epoch == 7
    export(root)
    image = planned_import(root).image
    assert {p.leader_epoch for t in image.topics.values() for p in t.partitions.values()} == {7}


def test_meta_properties_are_read_as_they_are_written() -> None:
    meta = MetaProperties("N5dAUpR5QT69TjvsBnn8kg", 3, bytes(range(16)))
    assert parse_meta_properties(encode_meta_properties(meta).decode()) == meta


@pytest.mark.parametrize("text", ["version=0\n", "version=1\ncluster.id=x\n", "", "node.id=1\n"])
def test_other_meta_properties_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"meta\.properties"):
        parse_meta_properties(text)
