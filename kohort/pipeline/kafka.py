"""A Kafka cluster for the jobs: the options of Spark's connector, and Kohort's own admin client.

Both get the settings of `--kafka`. The connector uses Java clients; the admin client supports their
TLS and SASL settings, except Java's keystores and Kerberos.
"""

import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Self, TypeAlias, TypeVar

from kohort.admin.cluster import Cluster, RefusedError
from kohort.admin.command_config import SettingError, security_of
from kohort.admin.group_changes import set_offsets
from kohort.admin.history import read_batches
from kohort.admin.offsets import END, START, checked_offsets
from kohort.admin.topics import describe_topic, list_topics, topic_id_of
from kohort.client.core.errors import AuthenticationError, ConfigError
from kohort.client.net.address import Address, parse_bootstrap
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.versions import UnsupportedVersionError
from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline.errors import UnavailableError
from kohort.protocol.errors import DecodeError, ErrorCode
from kohort.protocol.records.record import decode_records

Offsets: TypeAlias = dict[int, int]
_Result = TypeVar("_Result")

_ISOLATION: Final = "isolation.level"
_RETRY_S: Final = 0.2
_MISSING: Final = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's current state. A recreated topic has another id."""

    name: str
    topic_id: str
    partitions: tuple[int, ...]


class TopicMissingError(ReportedError):
    """The topic does not exist."""


class Kafka:
    """Addresses and client settings of a cluster."""

    def __init__(self, servers: str, settings: Mapping[str, str], *, timeout_s: float) -> None:
        self.servers = servers
        self.timeout_s = timeout_s
        self.settings: Final = dict(settings)

    def connector_options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self.settings.items()}
        return options | {"kafka.bootstrap.servers": self.servers}

    def check_reachable(self) -> None:
        """Connect to one of the servers: this fails faster than starting Spark would.

        Raises:
            UnavailableError: no broker listens; the message has the reason for each.
            UsageError: the servers are not a list of host:port.
        """
        failures = []
        for host, port in self.addresses():
            try:
                socket.create_connection((host, port), timeout=self.timeout_s).close()
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
                failures.append(f"{host}:{port}: {reason}")
            else:
                return
        raise UnavailableError(
            f"no broker can be reached ({'; '.join(failures)})\n"
            "Is the broker running? --bootstrap-server sets its address."
        )

    def addresses(self) -> list[Address]:
        try:
            return parse_bootstrap(self.servers, "--bootstrap-server")
        except ConfigError as error:
            raise UsageError(str(error)) from error

    def admin(self) -> "Admin":
        """Return an admin client of this cluster, which connects on first use.

        Raises UsageError if the admin client does not know a setting.
        """
        return Admin(self)


class Admin:
    """An admin client for several threads: waits at most `timeout_s`, then raises
    UnavailableError.
    """

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._addresses = kafka.addresses()
        try:
            self._security = security_of(kafka.settings, "--kafka")
        except SettingError as error:
            raise UsageError(str(error)) from error
        self._cluster: Cluster | None = None
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        with self._lock:
            if self._cluster is not None:
                self._cluster.close()
                self._cluster = None

    def cluster_id(self) -> str:
        return str(self._ask(lambda cluster: cluster.metadata([])).cluster_id)

    def topic(self, name: str) -> Topic:
        """Return a topic by name, without creating it.

        Raises:
            TopicMissingError: the topic does not exist.
        """
        described = self._ask(lambda cluster: cluster.metadata([name])).topics[0]
        if described.error_code in _MISSING:
            raise TopicMissingError(f"the topic {name} does not exist at {self._kafka.servers}")
        if described.error_code:
            reason = RefusedError(described.error_code, f"the topic {name} cannot be described")
            raise ReportedError(f"{self._kafka.servers} refuses: {reason}")
        indexes = sorted(partition.partition_index for partition in described.partitions)
        return Topic(name, topic_id_of(described), tuple(indexes))

    def starts(self, topic: Topic) -> Offsets:
        return self._offsets(topic, START)

    def ends(self, topic: Topic) -> Offsets:
        return self._offsets(topic, END)

    def at(self, topic: Topic, moment_ms: int) -> Offsets:
        """Return each partition's first offset at or after `moment_ms`, or its end offset if there
        is none.
        """
        ends = self.ends(topic)
        offsets = self._offsets(topic, moment_ms)
        return {index: at if at >= 0 else ends[index] for index, at in offsets.items()}

    def names(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the topics whose whole names match, sorted, without internal ones."""
        topics = self._ask(list_topics)
        return [topic.name for topic in topics if pattern.fullmatch(topic.name)]

    def size(self, topic: Topic) -> int:
        """Return the size of the topic in bytes, one replica of each partition counted; 0 if
        unknown.
        """
        try:
            described = self._ask(lambda cluster: describe_topic(cluster, topic.name))
        except ReportedError:
            return 0
        partitions = [] if described is None else described.partitions
        return sum(partition.size_bytes or 0 for partition in partitions)

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group without members, so that tools show the lag.

        Raises:
            ReportedError: the group has members, or the commit was rejected.
        """
        commits = {(topic, partition): offset for partition, offset in offsets.items()}
        self._ask(lambda cluster: set_offsets(cluster, group, commits))

    def records(self, topic: str, partition: int, first: int, end: int) -> list[tuple[Any, ...]]:
        """Read the records from offset `first` to before `end`, as tuples of key, value, topic,
        partition, offset, timestamp in milliseconds, timestamp type, and headers or None.

        Raises:
            UnavailableError: no broker answers.
            ReportedError: the brokers refused the request, or the client is set to read_committed.
        """
        if self._kafka.settings.get(_ISOLATION) == "read_committed":
            raise ReportedError(
                f"{topic}-{partition} has a record at offset {first} whose timestamp exceeds "
                f"Spark's range, which cannot be read with {_ISOLATION}=read_committed"
            )

        def read(cluster: Cluster) -> list[tuple[Any, ...]]:
            return [
                (
                    _bytes(record.key),
                    _bytes(record.value),
                    topic,
                    partition,
                    record.offset,
                    record.timestamp,
                    int(header.timestamp_type),
                    [(_text(name), _bytes(value)) for name, value in record.headers] or None,
                )
                for header, batch in read_batches(cluster, topic, partition, first, end)
                if not header.is_control
                for record in decode_records(batch, header)
                if first <= record.offset < end
            ]

        return self._ask(read)

    def _offsets(self, topic: Topic, moment_ms: int) -> Offsets:
        times = {(topic.name, index): moment_ms for index in topic.partitions}
        found = self._ask(lambda cluster: checked_offsets(cluster, times))
        return {index: offset for (_, index), offset in found.items()}

    def _ask(self, work: Callable[[Cluster], _Result]) -> _Result:
        """Call `work` with the cluster; if connections break, connect and call it again."""
        servers, timeout_s = self._kafka.servers, self._kafka.timeout_s
        deadline_s = time.monotonic() + timeout_s
        with self._lock:
            while True:
                try:
                    if self._cluster is None:
                        self._cluster = Cluster(self._addresses, timeout_s, self._security)
                    return self._cluster.retrying(partial(work, self._cluster))
                except DisconnectedError as error:
                    if self._cluster is not None:
                        self._cluster.close()
                        self._cluster = None
                    if time.monotonic() > deadline_s:
                        raise UnavailableError(
                            f"no broker answers at {servers} ({error})"
                        ) from error
                except (
                    AuthenticationError,
                    DecodeError,
                    RefusedError,
                    UnsupportedVersionError,
                ) as error:
                    raise ReportedError(f"{servers} refuses: {error}") from error
                time.sleep(_RETRY_S)


def _bytes(value: bytes | memoryview | None) -> bytearray | None:
    return None if value is None else bytearray(value)


def _text(name: str) -> str:
    """Return a header's name with U+FFFD for bytes that are not UTF-8, as Java's clients do."""
    return name.encode(errors="surrogateescape").decode(errors="replace")


def partition_ranges(offsets: Iterable[tuple[int, int]]) -> str:
    """Format partitions and offsets: "0: 5, 1: 7"."""
    return ", ".join(f"{partition}: {offset}" for partition, offset in sorted(offsets))
