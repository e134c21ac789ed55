"""A Kafka cluster of any size, seen from outside: which broker to ask what."""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from types import TracebackType
from typing import Any, Final, Self, TypeVar

from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
)
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.version import VERSION

T = TypeVar("T")

CLIENT_ID: Final = "kohort-cli"
RETRY_S: Final = 0.2

_METADATA_MAX: Final = 12
_COORDINATORS_SINCE: Final = 4
"""Versions before it ask for one key (KIP-699)."""
_PASSING: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a coordinator answers that is not known yet, is just moving, or is reading its groups."""


class CoordinatorKind(IntEnum):
    """What a coordinator looks after."""

    GROUP = 0
    TRANSACTION = 1


_LOOKED_AFTER: Final = {
    CoordinatorKind.GROUP: "the group",
    CoordinatorKind.TRANSACTION: "the transactional id",
}


class RefusedError(Exception):
    """A broker has answered with an error; the text says to what."""

    def __init__(self, error: int, what: str, message: str | None = None) -> None:
        """Say what was asked, and why it is refused in the broker's own words if it has any."""
        self.error = error
        why = f" ({message.rstrip('.')})" if message else ""
        super().__init__(f"{what}{why}: {error_name(error)}")


def error_name(error: int) -> str:
    """GROUP_ID_NOT_FOUND, or "error 999"."""
    try:
        return ErrorCode(error).name
    except ValueError:
        return f"error {error}"


class Cluster:
    """Connections to its brokers, made when they are needed."""

    def __init__(
        self,
        servers: Sequence[Address],
        timeout_s: float,
        security: SecurityConfig = SecurityConfig(),  # noqa: B008 - it does not change.
    ) -> None:
        """Connect to the first server that answers; it is asked for the others.

        Args:
            timeout_s: for connecting, and for each answer.

        Raises:
            DisconnectedError: no server answers; tells why of each.
            AuthenticationError: one does, and does not let us in.
        """
        self._timeout_s = timeout_s
        self._config = ConnectionConfig(
            client_id=CLIENT_ID,
            software_version=VERSION,
            connect_timeout_ms=max(int(timeout_s * 1000), 1),
            security=security,
        )
        self._connections: dict[Address, BlockingConnection] = {}
        self._servers = servers
        self._any()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(
        self, broker: BlockingConnection, request: object, *, at_most: int | None = None
    ) -> Any:  # noqa: ANN401 - the response that belongs to the request.
        """The broker's answer, in the newest version that both sides know, or `at_most`.

        Raises:
            DisconnectedError: no answer, or not one.
            UnsupportedVersionError: no version in common.
        """
        try:
            return broker.call(request, self._timeout_s, at_most=at_most)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{broker.address}: {error}", error.code) from None

    def metadata(self, topics: list[str] | None, *, creates: bool = False) -> MetadataResponse:
        """The brokers, and these topics; None for all topics.

        Args:
            creates: a broker with auto.create.topics.enable makes those that are missing.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=creates,
        )
        answer: MetadataResponse = self.ask(self._any(), request, at_most=_METADATA_MAX)
        return answer

    def brokers(self) -> list[BlockingConnection]:
        """All that are alive."""
        listed = self.metadata([]).brokers
        return [self.connection(broker.host, broker.port) for broker in listed]

    def controller(self) -> BlockingConnection:
        """The broker that changes topics; in a cluster of several, any that passes it on."""
        answer = self.metadata([])
        return self.broker(answer, answer.controller_id) or self._any()

    def coordinator(self, key: str, kind: CoordinatorKind) -> BlockingConnection:
        """The broker that looks after a group, or after a transactional id.

        Raises:
            RefusedError: none does.
        """
        some = self._any()
        if some.versions.best(FindCoordinatorRequest) >= _COORDINATORS_SINCE:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            found = self.ask(some, request).coordinators[0]
        else:
            found = self.ask(some, FindCoordinatorRequest(key=key, key_type=kind))
        if found.error_code:
            raise RefusedError(found.error_code, f"{_LOOKED_AFTER[kind]} has no coordinator")
        return self.connection(found.host, found.port)

    def leader(self, topic: str, partition: int) -> BlockingConnection | None:
        """The broker that leads a partition; None if there is no such partition.

        Raises:
            RefusedError: it has no leader now.
        """
        answer = self.metadata([topic])
        found = [one for one in answer.topics[0].partitions if one.partition_index == partition]
        if not found:
            return None
        leader = self.broker(answer, found[0].leader_id)
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leader

    def retrying(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, in the end: coordinators may need a moment to find their feet."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except RefusedError as error:
                if error.error not in _PASSING or time.monotonic() + RETRY_S > deadline_s:
                    raise
            time.sleep(RETRY_S)

    def _any(self) -> BlockingConnection:
        """A connection to the first server that answers.

        Raises:
            DisconnectedError: none does; tells why of each.
        """
        failures = []
        for server in self._servers:
            try:
                return self.connection(*server)
            except DisconnectedError as error:
                failures.append(str(error))
        raise DisconnectedError("; ".join(failures))

    def broker(self, metadata: MetadataResponse, node_id: int) -> BlockingConnection | None:
        """The broker of an id that an answer to Metadata names; None if it lists no such broker.

        Raises DisconnectedError, AuthenticationError.
        """
        for broker in metadata.brokers:
            if broker.node_id == node_id:
                return self.connection(broker.host, broker.port)
        return None

    def connection(self, host: str, port: int) -> BlockingConnection:
        """The one to this broker, a new one if the last is closed.

        Raises DisconnectedError, AuthenticationError.
        """
        address = Address(host, port)
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = BlockingConnection(address, self._config)
            connection.open(self._timeout_s)
            self._connections[address] = connection
        return connection
