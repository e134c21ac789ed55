"""Unauthenticated connections, limited in number and in time.

Only bookkeeping: the server closes the connections. They are counted by address block, because a
host with one IPv6 address can use 2**64 of them.
"""

from collections.abc import Iterator
from typing import Generic, Protocol, TypeVar


class Unauthenticated(Protocol):
    @property
    def address_block(self) -> str: ...


A = TypeVar("A", bound=Unauthenticated)


class UnauthenticatedConnections(Generic[A]):
    """Connections whose TLS handshake or SASL authentication is not complete."""

    __slots__ = ("_blocks_by_count", "_by_block", "_most", "_since_ms")

    def __init__(self) -> None:
        self._since_ms: dict[A, int] = {}
        self._by_block: dict[str, dict[A, None]] = {}
        # By number of connections, to find the block with the most without a scan: in an attack
        # this is done for every new connection.
        self._blocks_by_count: dict[int, dict[str, None]] = {}
        self._most = 0

    def __len__(self) -> int:
        return len(self._since_ms)

    def add(self, connection: A, now_ms: int, count_max: int) -> A | None:
        """Add a connection. If there are more than `count_max`, return the one to close: the
        oldest of the address block that has the most.
        """
        self._since_ms[connection] = now_ms
        block = connection.address_block
        block_connections = self._by_block.setdefault(block, {})
        block_connections[connection] = None
        self._recount(block, len(block_connections) - 1, len(block_connections))
        if len(self._since_ms) <= count_max:
            return None
        most = next(iter(self._blocks_by_count[self._most]))
        return next(iter(self._by_block[most]))

    def remove(self, connection: A) -> None:
        """Remove an authenticated or closed connection; unknown ones are ignored."""
        if self._since_ms.pop(connection, None) is None:
            return
        block = connection.address_block
        block_connections = self._by_block[block]
        del block_connections[connection]
        self._recount(block, len(block_connections) + 1, len(block_connections))
        if not block_connections:
            del self._by_block[block]

    def overdue(self, now_ms: int, timeout_ms: int) -> Iterator[A]:
        """Yield connections that exceed the time limit, oldest first; do not modify meanwhile."""
        for connection, since_ms in self._since_ms.items():
            if now_ms - since_ms < timeout_ms:
                return
            yield connection

    def _recount(self, block: str, before: int, after: int) -> None:
        if before:
            blocks = self._blocks_by_count[before]
            del blocks[block]
            if not blocks:
                del self._blocks_by_count[before]
        if after:
            self._blocks_by_count.setdefault(after, {})[block] = None
        if after > self._most or self._most not in self._blocks_by_count:
            self._most = after
