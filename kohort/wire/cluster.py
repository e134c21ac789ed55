"""A Kafka cluster of any size, seen from outside: whom to ask what."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self, TypeVar

from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.find_coordinator import (
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from kohort.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from kohort.wire.connection import Connection, UnreachableError

T = TypeVar("T")

PORT: Final = 9092
RETRY_S: Final = 0.2

_METADATA_MAX: Final = 12
_PASSING: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
"""What a coordinator answers that is not known yet, is just moving, or is reading its groups."""


class RefusedError(Exception):
    """A broker has answered with an error; the text says to what."""

    def __init__(self, error: int, what: str) -> None:
        self.error = error
        super().__init__(f"{what}: {error_name(error)}")


def error_name(error: int) -> str:
    """GROUP_ID_NOT_FOUND, or "error 999"."""
    try:
        return ErrorCode(error).name
    except ValueError:
        return f"error {error}"


def parse_servers(text: str) -> list[tuple[str, int]]:
    """What "host:port,host,[::1]:port" means.

    Raises:
        ValueError: not such a list.
    """
    servers = []
    for server in text.split(","):
        host, colon, port = server.strip().rpartition(":")
        if not colon or port.endswith("]"):
            host, port = server.strip(), str(PORT)
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 1 << 16:
            raise ValueError(f"{server.strip()!r} is not host:port")
        servers.append((host, int(port)))
    return servers


class Cluster:
    """Connections to its brokers, made when they are needed."""

    def __init__(self, servers: list[tuple[str, int]], timeout_s: float) -> None:
        """The first server that answers is the one that is asked for the others.

        Raises:
            UnreachableError: none does; tells why of each.
        """
        self._timeout_s = timeout_s
        self._connections: dict[tuple[str, int], Connection] = {}
        failures = []
        for host, port in servers:
            try:
                self._first = self.connection(host, port)
                break
            except UnreachableError as error:
                failures.append(str(error))
        else:
            raise UnreachableError("; ".join(failures))

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

    def metadata(self, topics: list[str]) -> MetadataResponse:
        """The brokers, and these topics, none of which is created."""
        request = MetadataRequest(
            topics=[MetadataRequestTopic(name=name) for name in topics],
            allow_auto_topic_creation=False,
        )
        return self._first.call(request, MetadataResponse, at_most=_METADATA_MAX)

    def brokers(self) -> list[Connection]:
        """All that are alive."""
        listed = self.metadata([]).brokers
        return [self.connection(broker.host, broker.port) for broker in listed]

    def coordinator(self, group_id: str) -> Connection:
        """The broker that looks after a group.

        Raises:
            RefusedError: none does.
        """
        if self._first.version_of(FindCoordinatorRequest) >= 4:
            request = FindCoordinatorRequest(coordinator_keys=[group_id])
            answer = self._first.call(request, FindCoordinatorResponse)
            found = answer.coordinators[0]
            error, host, port = found.error_code, found.host, found.port
        else:
            request = FindCoordinatorRequest(key=group_id)
            answer = self._first.call(request, FindCoordinatorResponse)
            error, host, port = answer.error_code, answer.host, answer.port
        if error:
            raise RefusedError(error, "the group has no coordinator")
        return self.connection(host, port)

    def patiently(self, ask: Callable[[], T]) -> T:
        """What `ask` returns, in the end: coordinators may need a moment to find their feet."""
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            try:
                return ask()
            except RefusedError as error:
                if error.error not in _PASSING or time.monotonic() + RETRY_S > deadline_s:
                    raise
            time.sleep(RETRY_S)

    def connection(self, host: str, port: int) -> Connection:
        """The one to this broker. Raises UnreachableError."""
        connection = self._connections.get((host, port))
        if connection is None:
            connection = Connection(host, port, self._timeout_s)
            self._connections[host, port] = connection
        return connection
