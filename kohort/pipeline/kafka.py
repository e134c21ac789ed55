"""A Kafka cluster for the jobs: options of Spark's connector, a consumer and an admin client.

The clients are Java's from the connector's jars, in Spark's JVM, and not `kohort.admin`: `--kafka`
takes every setting of Java's clients, among them Java keystores, Kerberos and callback handlers of
other vendors, which only they support. If the connector can authenticate, so can they.
"""

import re
import socket
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self, TypeAlias

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from kohort.insight.errors import ReportedError, UsageError
from kohort.pipeline import jvm
from kohort.pipeline.errors import UnavailableError

Offsets: TypeAlias = dict[int, int]

PORT: Final = 9092
_POLL_MS: Final = 200
CLIENT_ID: Final = "kohort-pipeline"


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
        self._settings = dict(settings)

    def connector_options(self) -> dict[str, str]:
        options = {f"kafka.{name}": value for name, value in self._settings.items()}
        return options | {"kafka.bootstrap.servers": self.servers}

    def check_reachable(self) -> None:
        """Connect to one of the servers, which is cheaper than starting Spark.

        Raises:
            UnavailableError: no broker listens; the message has the reason for each.
            UsageError: the servers are not a list of host:port.
        """
        failures = []
        for server in self.servers.split(","):
            host, port = _parse(server.strip())
            try:
                socket.create_connection((host, port), timeout=self.timeout_s).close()
            except (OSError, UnicodeError) as error:
                reason = getattr(error, "strerror", None) or str(error) or "no answer in time"
                failures.append(f"{server.strip()}: {reason}")
            else:
                return
        raise UnavailableError(
            f"no broker can be reached ({'; '.join(failures)})\n"
            "Is the broker running? --bootstrap-server sets its address."
        )

    def admin(self, spark: SparkSession) -> "Admin":
        """Return an admin client of this cluster. Raises UnavailableError."""
        return Admin(spark, self)

    def records(
        self, spark: SparkSession, topic: str, partition: int, first: int, end: int
    ) -> list[tuple[Any, ...]]:
        """Read the records from offset `first` to before `end` in this process's JVM, as tuples of
        key, value, topic, partition, offset, timestamp in milliseconds, timestamp type, and
        headers or None.

        Raises:
            UnavailableError: the brokers sent nothing in time.
            ReportedError: the brokers refused the request.
        """
        java = jvm.packages(spark)
        settings = java.java.util.HashMap()
        for name, value in self.client_settings().items():
            settings.put(name, value)
        settings.put("auto.offset.reset", "earliest")
        as_bytes = java.org.apache.kafka.common.serialization.ByteArrayDeserializer()
        place = java.org.apache.kafka.common.TopicPartition(topic, partition)
        consumer = java.org.apache.kafka.clients.consumer.KafkaConsumer(
            settings, as_bytes, as_bytes
        )
        rows: list[tuple[Any, ...]] = []
        try:
            consumer.assign(java.java.util.List.of(place))
            consumer.seek(place, first)
            deadline_s = time.monotonic() + self.timeout_s
            while (at := consumer.position(place)) < end:
                records = consumer.poll(java.java.time.Duration.ofMillis(_POLL_MS))
                rows += map(_row, records.records(place))
                if consumer.position(place) > at:
                    deadline_s = time.monotonic() + self.timeout_s
                elif time.monotonic() > deadline_s:
                    raise UnavailableError(f"no broker at {self.servers} answered in time")
        except Py4JJavaError as error:
            raise ReportedError(f"{self.servers} refuses: {_reason(error)}") from error
        finally:
            consumer.close()
        return [row for row in rows if row[_OFFSET] < end]

    def client_settings(self) -> dict[str, str]:
        timeout_ms = str(round(self.timeout_s * 1000))
        return {
            "client.id": CLIENT_ID,
            "default.api.timeout.ms": timeout_ms,
            "request.timeout.ms": timeout_ms,
            **self._settings,
            "bootstrap.servers": self.servers,
        }


class Admin:
    """An admin client: waits at most `timeout_s`, then raises UnavailableError."""

    def __init__(self, spark: SparkSession, kafka: Kafka) -> None:
        self._jvm = jvm.packages(spark)
        self._servers = kafka.servers
        settings = self._jvm.java.util.HashMap()
        for name, value in kafka.client_settings().items():
            settings.put(name, value)
        try:
            self._client = self._jvm.org.apache.kafka.clients.admin.Admin.create(settings)
        except Py4JJavaError as error:
            raise UsageError(f"Kafka's client does not start: {_reason(error)}") from error

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close(self._jvm.java.time.Duration.ofSeconds(1))

    def cluster_id(self) -> str:
        return str(self._get(self._client.describeCluster().clusterId()))

    def topic(self, name: str) -> Topic:
        """Return a topic by name, without creating it.

        Raises:
            TopicMissingError: the topic does not exist.
        """
        names = self._jvm.java.util.List.of(name)
        try:
            described = self._get(self._client.describeTopics(names).topicNameValues().get(name))
        except ReportedError as error:
            if "UnknownTopicOrPartition" in str(error) or "InvalidTopic" in str(error):
                raise TopicMissingError(
                    f"the topic {name} does not exist at {self._servers}"
                ) from error
            raise
        indexes = sorted(partition.partition() for partition in described.partitions())
        return Topic(name, str(described.topicId()), tuple(indexes))

    def starts(self, topic: Topic) -> Offsets:
        return self._offsets(topic, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.earliest())

    def ends(self, topic: Topic) -> Offsets:
        return self._offsets(topic, self._jvm.org.apache.kafka.clients.admin.OffsetSpec.latest())

    def at(self, topic: Topic, moment_ms: int) -> Offsets:
        """Return the first offset at or after that time, or the end offset if there is none."""
        spec = self._jvm.org.apache.kafka.clients.admin.OffsetSpec.forTimestamp(moment_ms)
        ends = self.ends(topic)
        offsets = self._offsets(topic, spec)
        return {index: at if at >= 0 else ends[index] for index, at in offsets.items()}

    def names(self, pattern: re.Pattern[str]) -> list[str]:
        """Return the topics whose whole names match, sorted, without internal ones."""
        names = self._get(self._client.listTopics().names())
        return sorted(str(name) for name in names if pattern.fullmatch(str(name)))

    def size(self, topic: Topic) -> int:
        """Return the topic's size in bytes, of one replica each; 0 if unknown."""
        largest: dict[int, int] = {}
        try:
            nodes = self._get(self._client.describeCluster().nodes()).toArray()
            brokers = self._jvm.java.util.ArrayList()
            for node in nodes:
                brokers.add(node.id())
            by_broker = self._get(self._client.describeLogDirs(brokers).allDescriptions())
        except ReportedError:
            return 0
        for directories in by_broker.values():
            for directory in directories.values():
                for partition, replica in directory.replicaInfos().items():
                    if partition.topic() == topic.name:
                        index = partition.partition()
                        largest[index] = max(largest.get(index, 0), replica.size())
        return sum(largest.values())

    def commit(self, group: str, topic: str, offsets: Mapping[int, int]) -> None:
        """Commit offsets for a group without members, so that tools show the lag.

        Raises:
            ReportedError: the group has members, or the commit was rejected.
        """
        commits = self._jvm.java.util.HashMap()
        for partition, offset in offsets.items():
            at = self._jvm.org.apache.kafka.clients.consumer.OffsetAndMetadata(offset)
            commits.put(self._partition(topic, partition), at)
        self._get(self._client.alterConsumerGroupOffsets(group, commits).all())

    def _offsets(self, topic: Topic, spec: object) -> Offsets:
        specs = self._jvm.java.util.HashMap()
        for partition in topic.partitions:
            specs.put(self._partition(topic.name, partition), spec)
        listed = self._get(self._client.listOffsets(specs).all())
        return {partition.partition(): at.offset() for partition, at in listed.items()}

    def _partition(self, topic: str, index: int) -> object:
        topic_partition: object = self._jvm.org.apache.kafka.common.TopicPartition(topic, index)
        return topic_partition

    def _get(self, future: Any) -> Any:  # noqa: ANN401 - a Java future and its value.
        try:
            return future.get()
        except Py4JJavaError as error:
            reason = _reason(error)
            if "TimeoutException" in reason or "DisconnectException" in reason:
                raise UnavailableError(
                    f"no broker answers at {self._servers} ({reason})"
                ) from error
            raise ReportedError(f"{self._servers} refuses: {reason}") from error


_OFFSET: Final = 4


def _row(record: Any) -> tuple[Any, ...]:  # noqa: ANN401 - a Java ConsumerRecord.
    headers = [(header.key(), _bytes(header.value())) for header in record.headers().toArray()]
    return (
        _bytes(record.key()),
        _bytes(record.value()),
        record.topic(),
        record.partition(),
        record.offset(),
        record.timestamp(),
        # Kafka's ids begin at -1, for no type.
        record.timestampType().ordinal() - 1,
        headers or None,
    )


def _bytes(value: Any) -> bytearray | None:  # noqa: ANN401 - py4j's bytes.
    return None if value is None else bytearray(value)


def partition_ranges(offsets: Iterable[tuple[int, int]]) -> str:
    """Format partitions and offsets: "0: 5, 1: 7"."""
    return ", ".join(f"{partition}: {offset}" for partition, offset in sorted(offsets))


def _reason(error: Py4JJavaError) -> str:
    cause = error.java_exception
    while cause.getCause() is not None:
        cause = cause.getCause()
    return f"{cause.getClass().getSimpleName()}: {cause.getMessage()}"


def _parse(server: str) -> tuple[str, int]:
    host, colon, port = server.rpartition(":")
    if not colon or port.endswith("]"):
        host, port = server, str(PORT)
    host = host.removeprefix("[").removesuffix("]")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
        raise UsageError(f"--bootstrap-server: {server!r} is not host:port")
    return host, int(port)
