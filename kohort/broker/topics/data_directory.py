"""The data directory: opening, closing, deletions. The caller holds its lock; all calls block."""

from __future__ import annotations

import base64
import logging
import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kohort.broker.config import BrokerConfig, ConfigError
from kohort.broker.storage.checkpoints.clean_shutdown import (
    mark_clean_shutdown,
    take_clean_shutdown_mark,
)
from kohort.broker.storage.errors import StorageError
from kohort.broker.storage.filesystem import FileSystem
from kohort.broker.storage.layout import KAFKA_FILE
from kohort.broker.storage.metadata.store import MetadataStore, TopicRecord
from kohort.broker.topics.directories import PartitionDirectories, unique_hex
from kohort.broker.topics.opening import is_offline_log
from kohort.broker.topics.rebuilding import Rebuilding
from kohort.broker.topics.topic import Topic

if TYPE_CHECKING:
    from kohort.broker.storage.log.log import PartitionLog

logger = logging.getLogger(__name__)


class DataDirectory:
    def __init__(
        self, store: MetadataStore, directories: PartitionDirectories, *, was_clean: bool
    ) -> None:
        """To be called by `open` only."""
        self.store = store
        self.directories = directories
        self.was_clean = was_clean

    @classmethod
    def open(
        cls,
        config: BrokerConfig,
        root: Path,
        files: FileSystem,
        store: MetadataStore | None,
        *,
        wall_ms: int,
    ) -> Self:
        """Open the metadata, and remove the marker of a clean shutdown if there is one.

        ``store`` replaces the database in the directory, for simulations. Raises ConfigError for a
        directory of another cluster or of Kafka, MetadataError or StorageError.
        """
        wanted = config.kohort_cluster_id
        try:
            files.make_directory(str(root))
            if files.exists(f"{root}/{KAFKA_FILE}"):
                problem = f"{root} is Apache Kafka's; `kohort import-kafka {root}` takes it over"
                raise ConfigError([problem])
            opened = store or MetadataStore(
                root,
                new_cluster_id=wanted or random_cluster_id(),
                rebuild=Rebuilding(files, root, config, wall_ms=wall_ms).rebuild,
            )
            if wanted is not None and wanted != opened.cluster_id:
                opened.close()
                problem = f"kohort.cluster.id is {wanted}, but {root} is of {opened.cluster_id}"
                raise ConfigError([problem])
            was_clean = take_clean_shutdown_mark(files, str(root))
            directories = PartitionDirectories(files, root, clean_shutdown=was_clean)
        except OSError as error:
            raise StorageError(f"{root} cannot be used: {error}") from error
        return cls(opened, directories, was_clean=was_clean)

    def close(self, *, is_clean: bool) -> None:
        """Write the checkpoints; if `is_clean`, also the marker of a clean shutdown. Raises
        StorageError.
        """
        try:
            self.directories.write_checkpoints(*self.directories.notes())
            if is_clean:
                self.directories.write_last_notes()
                mark_clean_shutdown(self.directories.files, str(self.directories.root))
        except OSError as error:
            raise StorageError(f"the stop cannot be marked as clean: {error}") from error
        finally:
            self.store.close()

    def release_directories(self, topics: Iterable[Topic]) -> list[Path]:
        """Free the directory names of topics that were marked as deleted.

        Returns the directories to remove. Anything that fails is repeated at the next start.
        """
        refuse: list[Path] = []
        released: list[bytes] = []
        for topic in topics:
            try:
                refuse += self._release(topic)
            except (OSError, StorageError) as error:
                logger.warning(
                    "directories of %s cannot be removed before the next start: %s", topic, error
                )
            else:
                released.append(topic.topic_id)
        try:
            self.directories.sync_names()
        except OSError as error:
            logger.warning("the next start repeats the removal of deleted topics: %s", error)
        else:
            self.store.forget_topics(released)
        return refuse

    def _release(self, topic: Topic) -> list[Path]:
        """Rename the directories of a deleted topic; return their new paths."""
        directories = self.directories
        refuse: list[Path] = []
        for partition in topic.partitions.opened():
            if not directories.exists(topic.name, partition.index):
                continue
            if is_offline_log(partition.log):
                path = directories.path(topic.name, partition.index)
                refuse += directories.rename_deleted([path])
            else:
                refuse.append(partition.log.delete(unique_hex()))
        unopened = TopicRecord(
            topic_id=topic.topic_id,
            name=topic.name,
            partition_count=len(topic.partitions),
            created_ms=0,
        )
        remains = directories.remains_of(unopened, is_name_free=True)
        refuse += directories.rename_deleted(remains)
        return refuse

    def finish_deletions(self, living: set[str]) -> list[Path]:
        """Complete interrupted deletions; return the directories to remove. `living` are the names
        of all topics that were not deleted.
        """
        directories = self.directories
        refuse = directories.deleted()
        for topic in self.store.deleted_topics():
            remains = directories.remains_of(topic, is_name_free=topic.name not in living)
            try:
                refuse += directories.rename_deleted(remains)
                directories.sync_names()
            except OSError as error:
                logger.warning("directories of %s cannot be renamed: %s", topic.name, error)
            else:
                self.store.forget_topics([topic.topic_id])
        directories.keep_notes_of(living)
        return refuse

    def to_recover(self, topics: Iterable[Topic]) -> list[tuple[Topic, int]]:
        """Return the partitions to verify before any client is served; none after a clean shutdown.

        Partitions without a directory need no verification, and get a directory only when they are
        used.
        """
        existing = self.directories.existing()
        known = {
            (topic.name, index): topic for topic in topics for index in range(len(topic.partitions))
        }
        strays = existing - known.keys()
        if strays:
            shown = ", ".join(f"{name}-{index}" for name, index in sorted(strays)[:5])
            logger.warning(
                "Left unchanged, because they belong to no topic: %d directories: %s",
                len(strays),
                shown,
            )
        if self.was_clean:
            return []
        return [(known[name, index], index) for name, index in sorted(existing & known.keys())]


def close_logs(logs: Iterable[PartitionLog]) -> bool:
    """Close logs, which makes them durable; return whether that succeeded for all of them."""
    is_clean = True
    for log in logs:
        if log.failed:
            is_clean = False
        elif log.log_end_offset > 0:
            try:
                log.close()
            except StorageError as error:
                logger.error("%s", error)  # noqa: TRY400 - the text says it all.
                is_clean = False
    return is_clean


def random_cluster_id() -> str:
    """Create a cluster id like Kafka's: 16 random bytes in URL-safe base64."""
    return base64.urlsafe_b64encode(os.urandom(16)).decode().rstrip("=")
