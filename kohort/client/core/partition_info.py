"""The result type of `Consumer.partitions_for`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class Node(NamedTuple):
    """A broker and its address."""

    id: int
    host: str
    port: int
    rack: str | None = None


class PartitionInfo(NamedTuple):
    """A partition, its leader and its replicas (Java's class of this name)."""

    topic: str
    partition: int
    leader: Node | None
    """The leader, None if there is none at present."""
    replicas: Sequence[Node]
    """All replicas. Of an offline one only the id is known."""
    in_sync_replicas: Sequence[Node]
    offline_replicas: Sequence[Node]
