"""Converts Kohort's data directory to Apache Kafka's, in place.

Records, indexes, offsets and transactions already have Kafka's formats. Only the metadata changes:
a snapshot of `__cluster_metadata` is written, and Kohort's databases are renamed. The directory is
Kafka's once it contains `meta.properties`, the last of Kafka's files to be written; until then,
Kohort opens it as before. Blocking code; the directory must be locked.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kohort.broker.config.network import EVERY_INTERFACE, Endpoint
from kohort.broker.kafka_directory.image import records_of
from kohort.broker.kafka_directory.metadata_files import (
    BOOTSTRAP,
    DIRECTORY,
    MetaProperties,
    encode_meta_properties,
    write_first_snapshot,
)
from kohort.broker.kafka_directory.own_metadata import image_of
from kohort.broker.kafka_directory.releases import KAFKA_4_4, Release
from kohort.broker.kafka_directory.survey import (
    Plan,
    ReportProgress,
    note_ids,
    remove_own_notes,
    survey,
)
from kohort.broker.storage.checked_file import replace_file
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import KAFKA_FILE
from kohort.broker.storage.metadata.database import Content, MetadataDatabase, MetadataError
from kohort.broker.storage.metadata.store import CLUSTER_ID, MIRROR_FILE_NAME
from kohort.broker.storage.metadata.store import FILE_NAME as DATABASE
from kohort.broker.topics.directories import STRAY_SUFFIX, PartitionDirectories, unique_hex

EXPORTED_SUFFIX: Final = ".exported"
"""Suffix of Kohort's databases while the directory is Kafka's."""

CONTROLLER: Final = "CONTROLLER"
"""Name of the controller's listener."""
KAFKA_LISTENERS: Final = (
    Endpoint("PLAINTEXT", "localhost", 9092),
    Endpoint(CONTROLLER, "localhost", 9093),
)
"""The listeners in the server.properties of Kafka's distribution."""


@dataclass(slots=True)
class ExportPlan(Plan):
    release: Release = KAFKA_4_4


def plan_export(
    files: FileSystem,
    root: Path,
    *,
    node_id: int,
    new_id: Callable[[], bytes],
    report: ReportProgress,
    release: Release = KAFKA_4_4,
) -> ExportPlan:
    """Examine the directory without changes. Raises OSError and StorageError.

    Args:
        node_id: the node id, the same in Kohort's and in Kafka's settings.
        new_id: returns a new UUID, as 16 bytes.
        release: the earliest Kafka release that must be able to start on the directory.
    """
    plan = ExportPlan(root, release=release)
    problems = plan.problems
    if files.exists(str(root / KAFKA_FILE)):
        problems.append(f"it is a Kafka data directory: it contains {KAFKA_FILE}")
        return plan
    content = _own_content(files, root, problems)
    if content is None:
        return plan
    if any(topic.deleted for topic in content.topics):
        problems.append("deleted topics still have directories: start Kohort once more")
    epochs = PartitionDirectories(files, root, clean_shutdown=True)
    directory_id = new_id()
    plan.meta = MetaProperties(content.properties[CLUSTER_ID], node_id, directory_id)
    plan.image, left = image_of(
        content,
        node_id=node_id,
        directory_id=directory_id,
        leader_epoch=epochs.leader_epoch,
        new_id=new_id,
    )
    plan.left += left
    survey(files, plan, report)
    return plan


def carry_out_export(
    files: FileSystem, plan: ExportPlan, *, now_ms: int, report: ReportProgress
) -> None:
    """Execute a plan that has no problems; may be called again after a failure. Raises OSError."""
    root = plan.root
    note_ids(files, plan)
    set_metadata_aside(files, root)
    records = records_of(plan.image, plan.release)
    write_first_snapshot(files, root, records, now_ms=now_ms, release=plan.release)
    remove_own_notes(root, report)
    replace_file(files, str(root / KAFKA_FILE), encode_meta_properties(plan.meta))
    files.sync_directory(str(root))
    for name in (DATABASE, MIRROR_FILE_NAME):
        set_database_aside(root / name, EXPORTED_SUFFIX)
    files.sync_directory(str(root))


def settings_for_kafka(
    plan: ExportPlan, listeners: Sequence[Endpoint] = KAFKA_LISTENERS
) -> list[str]:
    """Return the lines that Kafka's server.properties needs for this directory.

    Args:
        listeners: Kafka's listeners, including `CONTROLLER`.
    """
    controller = next(listener for listener in listeners if listener.listener == CONTROLLER)
    # Kafka cannot connect to the wildcard address.
    host = "localhost" if controller.host in EVERY_INTERFACE else controller.host
    voter = str(controller._replace(host=host)).removeprefix(f"{CONTROLLER}://")
    lines = [
        "process.roles=broker,controller",
        f"node.id={plan.meta.node_id}",
        f"controller.quorum.voters={plan.meta.node_id}@{voter}",
        f"controller.listener.names={CONTROLLER}",
        f"listeners={','.join(map(str, listeners))}",
        f"log.dirs={plan.root.absolute()}",
        "offsets.topic.replication.factor=1",
        "transaction.state.log.replication.factor=1",
        "transaction.state.log.min.isr=1",
    ]
    if "share.version" in plan.release.features:
        lines.append("share.coordinator.state.topic.replication.factor=1")
        lines.append("share.coordinator.state.topic.min.isr=1")
    if plan.image.rules:
        authorizer = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
        lines.append(f"authorizer.class.name={authorizer}")
    return lines


def set_metadata_aside(files: FileSystem, root: Path) -> None:
    """Rename an obsolete controller log and its bootstrap files, so that nothing opens them."""
    for path in (root / DIRECTORY, root / BOOTSTRAP):
        if files.exists(str(path)):
            files.rename(str(path), f"{path}.{unique_hex()}{STRAY_SUFFIX}")
            files.sync_directory(str(root))


def set_database_aside(path: Path, suffix: str) -> None:
    """Rename a closed database, if it exists; an older one with the new name is replaced."""
    for part in ("", "-wal", "-shm"):
        file = Path(f"{path}{part}")
        target = Path(f"{path}{suffix}{part}")
        if file.exists():
            file.replace(target)
        else:
            target.unlink(missing_ok=True)


def _own_content(files: FileSystem, root: Path, problems: list[str]) -> Content | None:
    """Return the content of Kohort's databases, if it is the same in both."""
    path, mirror = root / DATABASE, root / MIRROR_FILE_NAME
    if not files.exists(str(path)):
        problems.append(f"it is not a Kohort data directory: it has no {DATABASE}")
        return None
    try:
        contents = [_read(copy) for copy in (path, mirror) if files.exists(str(copy))]
    except (MetadataError, StorageError) as error:
        problems.append(f"{error}: start Kohort once more, which repairs it")
        return None
    if any(content != contents[0] for content in contents):
        problems.append("the two databases differ: start Kohort once more, which repairs it")
        return None
    if CLUSTER_ID not in contents[0].properties:
        problems.append("no broker has ever been started with it")
        return None
    return contents[0]


def _read(path: Path) -> Content:
    database = MetadataDatabase(path)
    try:
        return database.read()
    finally:
        database.close()
