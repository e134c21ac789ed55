"""Selects request versions: the highest that both sides support."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from kohort.client.core.errors import ConsumerError
from kohort.protocol.errors import ErrorCode
from kohort.protocol.message import schema_of
from kohort.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

NO_VERSIONS: Final[Mapping[int, tuple[int, int]]] = MappingProxyType({})

NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class UnsupportedVersionError(ConsumerError):
    """The broker and the client have no version of the request in common."""


class ApiVersionTable:
    """The versions that one broker supports: (lowest, highest) by api key."""

    def __init__(
        self,
        ranges: Mapping[int, tuple[int, int]] = NO_VERSIONS,
        features: Mapping[str, int] = NO_FEATURES,
    ) -> None:
        """`features`: the finalized level of each feature (KIP-584)."""
        self._ranges = ranges
        self._features = features

    @property
    def has_consumer_groups(self) -> bool:
        """Whether the broker serves the consumer group protocol as Kafka 4.0 and later do."""
        _, highest = self._ranges.get(schema_of(ConsumerGroupHeartbeatRequest).key or -1, (0, 0))
        return highest >= 1 and self._features.get("group.version", 0) >= 1

    @property
    def reads_join_reasons(self) -> bool:
        """Whether the broker acts on JoinReason, as Kohort does."""
        return "join.reason" in self._features

    def best(self, request: type, at_most: int | None = None) -> int:
        """Return the highest version, up to `at_most`, that both sides support.

        Raises:
            UnsupportedVersionError: no version in common.
        """
        schema = schema_of(request)
        assert schema.key is not None
        ours = schema.versions
        theirs = self._ranges.get(schema.key)
        if theirs is None:
            raise UnsupportedVersionError(
                f"the broker does not know {request.__name__}", ErrorCode.UNSUPPORTED_VERSION
            )
        low, high = max(ours.low, theirs[0]), min(ours.high, theirs[1])
        if at_most is not None:
            high = min(high, at_most)
        if low > high:
            raise UnsupportedVersionError(
                f"{request.__name__}: the broker supports versions {theirs[0]} to {theirs[1]},"
                f" this client {ours.low} to {ours.high}",
                ErrorCode.UNSUPPORTED_VERSION,
            )
        return high
