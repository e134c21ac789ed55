"""Connections to the brokers of a cluster; routes each request to the right broker.

Everything in this package that asks a broker raises DisconnectedError if none answers, and
RefusedError if it answers with an error.
"""

import time
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Any, Final, Self, TypeVar

from kohort.client.net.address import Address
from kohort.client.net.blocking import BlockingConnection
from kohort.client.net.config import ConnectionConfig
from kohort.client.net.errors import DisconnectedError
from kohort.client.net.security import SecurityConfig
from kohort.client.net.versions import UnsupportedVersionError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import FindCoordinatorRequest
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
"""First FindCoordinator version with a list of keys (KIP-699)."""
_RETRIABLE: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.LEADER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
}
"""Errors while a coordinator is elected, moves, or loads its groups, and while a partition has no
leader, as right after the creation of its topic.
"""


class CoordinatorKind(IntEnum):
    """Kinds of keys that coordinators manage, by their number in FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


_MANAGED: Final = {
    CoordinatorKind.GROUP: "the group",
    CoordinatorKind.TRANSACTION: "the transactional id",
}


class RefusedError(Exception):
    """A broker responded with an error; the text names the request."""

    def __init__(self, error: int, what: str, message: str | None = None) -> None:
        """`what` says what failed; `message` is the broker's own text, None if it sent none."""
        self.error = error
        name = error_name(error)
        reason = f"{message.rstrip('.')} ({name})" if message else name
        super().__init__(f"{what}: {reason}")


def error_name(error: int) -> str:
    """The name of an error, such as GROUP_ID_NOT_FOUND; "error 999" for an unknown code."""
    try:
        return ErrorCode(error).name
    except ValueError:
        return f"error {error}"


def check(error: int, what: str, message: str | None = None) -> None:
    """Raise RefusedError unless `error` is NONE."""
    if error:
        raise RefusedError(error, what, message)


class Cluster:
    """A cluster; connections to its brokers are opened when they are needed."""

    def __init__(
        self,
        servers: Sequence[Address],
        timeout_s: float,
        security: SecurityConfig = SecurityConfig(),  # noqa: B008 - immutable.
    ) -> None:
        """Connect to the first server that answers.

        Args:
            timeout_s: for connecting, and for each response.

        Raises:
            DisconnectedError: no server answers; the text has the reason for each.
            AuthenticationError: a server rejects the credentials.
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

    def another(self) -> "Cluster":
        """Return the same cluster with connections of its own, for another thread. Raises as the
        constructor does.
        """
        return Cluster(self._servers, self._timeout_s, self._config.security)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        for connection in self._connections.values():
            connection.close()

    def ask(
        self, broker: BlockingConnection, request: object, *, at_most: int | None = None
    ) -> Any:  # noqa: ANN401 - the response of the request.
        """Send a request and return its response.

        Uses the newest version that both sides support, limited to `at_most`.

        Raises:
            DisconnectedError: no response, or an invalid one.
            UnsupportedVersionError: no version in common.
        """
        try:
            return broker.call(request, self._timeout_s, at_most=at_most)
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{broker.address}: {error}", error.code) from None

    def metadata(self, topics: list[str] | None, *, creates: bool = False) -> MetadataResponse:
        """Return the metadata of the brokers and of these topics; None means all topics.

        Args:
            creates: create missing topics, if the broker has auto.create.topics.enable.
        """
        asked = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(
            topics=asked,
            allow_auto_topic_creation=creates,
        )
        answer: MetadataResponse = self.ask(self._any(), request, at_most=_METADATA_MAX)
        return answer

    def brokers(self) -> list[BlockingConnection]:
        listed = self.metadata([]).brokers
        return [self.connection(broker.host, broker.port) for broker in listed]

    def controller(self) -> BlockingConnection:
        """Return a connection for changes of topics and configs: to the controller, or if it is
        unknown, to a broker that forwards them.
        """
        answer = self.metadata([])
        return self.broker(answer, answer.controller_id) or self._any()

    def coordinator(self, key: str, kind: CoordinatorKind) -> BlockingConnection:
        """Return the connection to the coordinator of a group or a transactional id.

        Raises:
            RefusedError: no coordinator is available now.
        """
        broker = self._any()
        if broker.versions.best(FindCoordinatorRequest) >= _COORDINATORS_SINCE:
            request = FindCoordinatorRequest(coordinator_keys=[key], key_type=kind)
            coordinator = self.ask(broker, request).coordinators[0]
        else:
            coordinator = self.ask(broker, FindCoordinatorRequest(key=key, key_type=kind))
        check(coordinator.error_code, f"the coordinator of {_MANAGED[kind]} cannot be found")
        return self.connection(coordinator.host, coordinator.port)

    def leader(self, topic: str, partition: int) -> BlockingConnection | None:
        """Return the connection to a partition's leader; None if the partition does not exist.

        Raises:
            RefusedError: the partition has no leader now.
        """
        answer = self.metadata([topic])
        leaders = {
            described.partition_index: described.leader_id
            for described in answer.topics[0].partitions
        }
        if partition not in leaders:
            return None
        leader = self.broker(answer, leaders[partition])
        if leader is None:
            raise RefusedError(ErrorCode.LEADER_NOT_AVAILABLE, f"{topic}-{partition} has no leader")
        return leader

    def retrying(self, ask: Callable[[], T]) -> T:
        """Call `ask` until it succeeds, with retries while a coordinator or leader is not
        available.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except RefusedError as error:
                if error.error not in _RETRIABLE or time.monotonic() + RETRY_S > deadline_s:
                    raise
            time.sleep(RETRY_S)

    def at_coordinator(
        self,
        key: str,
        ask: Callable[[BlockingConnection], T],
        kind: CoordinatorKind = CoordinatorKind.GROUP,
    ) -> T:
        """Call `ask` with a connection to the coordinator of `key`; retry like `retrying`."""
        return self.retrying(lambda: ask(self.coordinator(key, kind)))

    def _any(self) -> BlockingConnection:
        """Return a connection to the first server that answers.

        Raises:
            DisconnectedError: none answers; the text has the reason for each.
        """
        failures = []
        for server in self._servers:
            try:
                return self.connection(*server)
            except DisconnectedError as error:
                failures.append(str(error))
        raise DisconnectedError("; ".join(failures))

    def broker(self, metadata: MetadataResponse, node_id: int) -> BlockingConnection | None:
        """Return the connection to a broker; None if `metadata` does not list its id.

        Raises DisconnectedError, AuthenticationError.
        """
        for broker in metadata.brokers:
            if broker.node_id == node_id:
                return self.connection(broker.host, broker.port)
        return None

    def connection(self, host: str, port: int) -> BlockingConnection:
        """Return the open connection to a broker, or a new one if none is open.

        Raises DisconnectedError, AuthenticationError.
        """
        address = Address(host, port)
        connection = self._connections.get(address)
        if connection is None or connection.is_closed:
            connection = BlockingConnection(address, self._config)
            connection.open(self._timeout_s)
            self._connections[address] = connection
        return connection
