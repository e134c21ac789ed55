"""Converts the directory of a stopped one-node Kafka to Kohort's, in place.

Kohort's databases are created from Kafka's metadata, then `meta.properties` is renamed: from then
on the directory is Kohort's, and Kafka does not start on it. The controller log is kept under
another name. Blocking code; the directory must be locked.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kohort.broker.kafka_directory.exporting import set_database_aside, set_metadata_aside
from kohort.broker.kafka_directory.image import (
    TOPIC_CONFIGS,
    ClusterImage,
    PartitionImage,
    TopicImage,
)
from kohort.broker.kafka_directory.metadata_files import (
    DIRECTORY,
    MetadataUnreadableError,
    MetaProperties,
    parse_meta_properties,
    read_image,
)
from kohort.broker.kafka_directory.own_metadata import content_of
from kohort.broker.kafka_directory.survey import (
    Plan,
    ReportProgress,
    note_ids,
    remove_own_notes,
    shown,
    survey,
)
from kohort.broker.storage.checkpoints.offset_checkpoint import NEWEST_EPOCH_FILE, write_offsets
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import KAFKA_FILE, partition_directory
from kohort.broker.storage.metadata.database import Content, MetadataDatabase, put_property
from kohort.broker.storage.metadata.store import FILE_NAME as DATABASE
from kohort.broker.storage.metadata.store import MIRROR_FILE_NAME
from kohort.broker.topics.names import name_problem

IMPORTED_SUFFIX: Final = ".imported"
"""Appended to the name of Kafka's meta.properties while the directory is Kohort's."""
_EARLIER_SUFFIX: Final = ".before-import"
_NEW_SUFFIX: Final = ".importing"

_RESERVED_IDS: Final = 100
"""Smaller directory ids are reserved: for a lost, migrating or unassigned directory."""


@dataclass(slots=True)
class ImportPlan(Plan):
    content: Content = field(default_factory=lambda: Content([], {}))


def plan_import(
    files: FileSystem, root: Path, metadata: Path | None, *, now_ms: int, report: ReportProgress
) -> ImportPlan:
    """Examine the directory without changing it. Raises OSError.

    Args:
        metadata: the directory of `metadata.log.dir`; None if it is the data directory.
    """
    plan = ImportPlan(root)
    problems = plan.problems
    path = root / KAFKA_FILE
    if not path.exists():
        problems.append(f"it is not a Kafka data directory: it has no {KAFKA_FILE}")
        return plan
    try:
        plan.meta = parse_meta_properties(path.read_text())
        report("reading the metadata", 0, 1)
        plan.image, has_tokens = read_image((metadata or root) / DIRECTORY)
    except FileNotFoundError as error:
        problems.append(
            f"there is no {error.filename}: set --metadata-log-dir to the controller's log"
        )
        return plan
    except (ValueError, MetadataUnreadableError) as error:
        problems.append(str(error))
        return plan
    if has_tokens:
        plan.left.append("delegation tokens")
    problems += _of_others(plan.image, plan.meta)
    plan.content, left = content_of(plan.image, cluster_id=plan.meta.cluster_id, created_ms=now_ms)
    plan.left += left
    survey(files, plan, report)
    return plan


def carry_out_import(files: FileSystem, plan: ImportPlan, *, report: ReportProgress) -> None:
    """Execute the plan, which must have no problems. It can be repeated after an interruption.

    Raises OSError and StorageError.
    """
    root = plan.root
    note_ids(files, plan)
    remove_own_notes(root, report)
    epochs = {
        (topic.name, index): partition.leader_epoch
        for topic in plan.image.topics.values()
        for index, partition in topic.partitions.items()
        if partition.leader_epoch > 0
    }
    write_offsets(files, str(root), NEWEST_EPOCH_FILE, epochs)
    for name in (DATABASE, MIRROR_FILE_NAME):
        set_database_aside(root / name, _EARLIER_SUFFIX)
    _write_database(root, plan.content)
    files.sync_directory(str(root))
    files.rename(str(root / KAFKA_FILE), str(root / (KAFKA_FILE + IMPORTED_SUFFIX)))
    files.sync_directory(str(root))
    set_metadata_aside(files, root)


def _of_others(image: ClusterImage, meta: MetaProperties) -> list[str]:
    """Return the reasons why this directory is not a complete cluster, or cannot be served."""
    problems = []
    others = image.brokers - {meta.node_id}
    if others:
        ids = ", ".join(map(str, sorted(others)))
        problems.append(
            f"the cluster has other brokers: {ids}. Move all partitions to broker {meta.node_id}"
            " (kafka-reassign-partitions.sh), and unregister the others (kafka-cluster.sh)"
        )
    replicated, elsewhere, unusual = [], [], []
    for topic in image.topics.values():
        if name_problem(topic.name) or topic.partitions.keys() != set(range(len(topic.partitions))):
            unusual.append(topic.name)
        for index, partition in topic.partitions.items():
            name = partition_directory(topic.name, index)
            if partition.replicas != [meta.node_id]:
                replicated.append(name)
            elif _is_elsewhere(partition, meta):
                elsewhere.append(name)
    if replicated:
        problems.append(f"not on broker {meta.node_id} alone: {shown(replicated)}")
    if elsewhere:
        problems.append(
            f"in another directory of log.dirs: {shown(elsewhere)}. Kohort has one; move them with"
            " kafka-reassign-partitions.sh"
        )
    if unusual:
        problems.append(f"topics with invalid names or partitions: {shown(unusual)}")
    tiered = [topic.name for topic in image.topics.values() if _is_tiered(image, topic)]
    if tiered:
        problems.append(
            f"records in remote storage, which Kohort does not support: {shown(tiered)}"
        )
    return problems


def _is_elsewhere(partition: PartitionImage, meta: MetaProperties) -> bool:
    if meta.directory_id is None or not partition.directories:
        return False
    (directory,) = partition.directories
    is_real = int.from_bytes(directory, "big") >= _RESERVED_IDS
    return is_real and directory != meta.directory_id


def _is_tiered(image: ClusterImage, topic: TopicImage) -> bool:
    configs = image.configs_of(TOPIC_CONFIGS, topic.name)
    return configs.get("remote.storage.enable", "").lower() == "true"


def _write_database(root: Path, content: Content) -> None:
    """Create metadata.db; the next start of Kohort copies it to metadata-mirror.db."""
    path = root / (DATABASE + _NEW_SUFFIX)
    set_database_aside(path, _EARLIER_SUFFIX)
    database = MetadataDatabase(path)
    try:
        topics = [topic.put() for topic in content.topics]
        database.change(
            topics + [put_property(name, value) for name, value in content.properties.items()]
        )
    finally:
        database.close()
    path.replace(root / DATABASE)
