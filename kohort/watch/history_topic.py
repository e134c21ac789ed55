"""Stores the watchers' history records in a topic, in the format of a Kohort broker's own history
topic: `kohort groups why --bootstrap-server` and the pipeline read it.

Before a watcher writes, it reads the records of other watchers. If it is paused between reading and
writing, for longer than its session timeout, it writes records again, but with the same sequence
number and `observed` offset, so that readers count them once.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.history import read_records
from kohort.admin.offsets import END, START, checked_offsets
from kohort.admin.producing import Producer
from kohort.admin.topics import create_topic
from kohort.client.net.errors import DisconnectedError
from kohort.groups.history.entry import Entry, record_of
from kohort.groups.history.names import REBALANCE
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.records.batch import CompressionType
from kohort.protocol.records.record import Record
from kohort.watch.core.backlog import Json
from kohort.watch.membership import Membership
from kohort.watch.store import HistoryStore, StoreDeniedError, StoreError, StoreOutageError

RETENTION_MS: Final = 30 * 86_400_000
RETENTION_BYTES: Final = 256 << 20
"""Size limit of the topic, because each start reads the whole topic. A Kohort broker's own history
topic has the same limits."""

_CONFIGS: Final = {
    "cleanup.policy": "delete",
    "retention.ms": str(RETENTION_MS),
    "retention.bytes": str(RETENTION_BYTES),
    "segment.bytes": str(16 << 20),
}
_REPLICAS_MAX: Final = 3

WAITING_MAX: Final = 1_000
"""If this many records wait for the watcher that writes, the other watchers pause reading."""

_DENIALS: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    }
)


class HistoryTopic(HistoryStore):
    """Appends the history records that the topic does not have yet.

    Its methods raise StoreError.
    """

    def __init__(
        self, cluster: Cluster, topic: str, membership: Membership | None, *, timeout_s: float
    ) -> None:
        """Create the topic if it does not exist, and read it.

        Args:
            membership: decides which watcher writes to the topic; if None, this one always does.
            timeout_s: time limit for writing.

        Raises:
            ValueError: the brokers write the topic themselves, or it has several partitions.
        """
        super().__init__()
        self._cluster = cluster
        self._topic = topic
        self._membership = membership
        self._next_offset = 0
        with _store_errors():
            _ensure(cluster, topic)
            # Not idempotent, because brokers forget the id of an idle producer.
            self._producer = Producer(
                cluster,
                topic,
                timeout_s=timeout_s,
                codec=CompressionType.GZIP,
                is_idempotent=False,
            )
            self._catch_up()

    @property
    def is_full(self) -> bool:
        return len(self._backlog) >= WAITING_MAX

    @property
    def trouble(self) -> str | None:
        if self._membership is not None and self._membership.trouble is not None:
            return self._membership.trouble
        if self.is_full:
            return f"waiting for the watcher that writes to {self._topic}"
        return None

    def flush(self) -> None:
        """Append the offered records, if this watcher is the one that writes to the topic."""
        membership = self._membership
        if membership is not None and membership.refusal is not None:
            raise StoreDeniedError(str(membership.refusal))
        if not self._backlog:
            return
        with _store_errors():
            self._catch_up()
            records = self._backlog.missing()
            if membership is not None and not membership.is_writer:
                self._backlog.drop_unplaced()
                return
            for record in records:
                self._producer.add(_encoded(record), 0)
            self._producer.flush()
        for record in records:
            self._backlog.note(record)
        self._backlog.missing()

    def _catch_up(self) -> None:
        partition = (self._topic, 0)
        start = checked_offsets(self._cluster, {partition: START}).get(partition, 0)
        end = checked_offsets(self._cluster, {partition: END}).get(partition, 0)
        if not start <= self._next_offset <= end:
            # Retention has deleted records, or the topic was recreated.
            self._next_offset = start
        for record in read_records(self._cluster, self._topic, 0, self._next_offset, end):
            # Skip values that are not history records, as readers do.
            with suppress(ValueError):
                self._note(record.value or b"")
        self._next_offset = end


@contextmanager
def _store_errors() -> Iterator[None]:
    try:
        yield
    except RefusedError as error:
        if error.error in _DENIALS:
            raise StoreDeniedError(str(error)) from error
        kind = StoreOutageError if ErrorCode(error.error).retriable else StoreError
        raise kind(str(error)) from error
    except DisconnectedError as error:
        raise StoreOutageError(str(error)) from error
    except DecodeError as error:
        raise StoreError(str(error)) from error


def _ensure(cluster: Cluster, topic: str) -> None:
    """Create the topic if it does not exist. Raises ValueError, RefusedError, DisconnectedError."""
    answer = cluster.metadata([topic])
    described = answer.topics[0]
    if described.is_internal:
        raise ValueError("the brokers of this cluster write it: they record the history themselves")
    if described.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        replicas = min(len(answer.brokers), _REPLICAS_MAX)
        try:
            create_topic(
                cluster, topic, partitions=1, replication_factor=replicas, configs=_CONFIGS
            )
        except RefusedError as error:
            if error.error != ErrorCode.TOPIC_ALREADY_EXISTS:
                raise
    elif len(described.partitions) > 1:
        raise ValueError(f"it has {len(described.partitions)} partitions, and must have 1")


def _encoded(record: Json) -> Record:
    kind = record["kind"]
    if kind == REBALANCE:
        at_ms = record["started_at_ms"] + (record["timeline"]["finished_ms"] or 0)
    else:
        at_ms = record["at_ms"]
    text = json.dumps(record, separators=(",", ":")).encode()
    group, sequence, generation = record["group"], record["sequence"], record.get("generation")
    return record_of(Entry(group, kind, sequence, text, at_ms, generation))
