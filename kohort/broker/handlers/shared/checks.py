"""Checks that several APIs share: leaders and their epochs (KIP-320), a limit on repeated names,
and the quota for topic mutations (KIP-599).

The limit on repeated names bounds responses: a request of 100 kB may repeat a name fifty thousand
times, and a response with as many descriptions of a group or topic would have gigabytes.

A client that understands THROTTLING_QUOTA_EXCEEDED is refused while its quota is exceeded; all
others are served, and throttled afterwards.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TYPE_CHECKING, Final

from kohort.broker.core.security.acls import Operation, ResourceType
from kohort.broker.dispatch.context import RequestContext
from kohort.broker.topics.topic import Topic
from kohort.protocol.errors import NO_ERROR, ErrorCode, KafkaError

if TYPE_CHECKING:
    from kohort.broker.topics.partition import Partition

NO_LEADER: Final = -1
"""The leader id of a partition without a leader."""

_MEMBER_ID_UNITS_MAX: Final = 36
"""Maximum length of a share group member id, in UTF-16 units as Java counts."""


def is_member_id(member_id: str | None) -> bool:
    """Whether a client may use this member id in a share group."""
    if not member_id:
        return False
    return len(member_id.encode("utf-16-le", "surrogatepass")) // 2 <= _MEMBER_ID_UNITS_MAX


def check_leader_epoch(clients_epoch: int, leader_epoch: int) -> ErrorCode:
    """Return the error for a request whose ``current_leader_epoch`` is `clients_epoch`; -1 skips
    the check.

    Args:
        leader_epoch: the partition's leader epoch.
    """
    if clients_epoch in {-1, leader_epoch}:
        return NO_ERROR
    if clients_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH


def current_partition(ctx: RequestContext, topic: str, index: int, clients_epoch: int) -> Partition:
    """Return the requested partition, if `clients_epoch` is its leader epoch or -1.

    Raises:
        KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or the error of `check_leader_epoch`.
    """
    partition = ctx.broker.topics.partition(topic, index)
    if partition is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if error := check_leader_epoch(clients_epoch, partition.leader_epoch):
        raise KafkaError(error)
    return partition


def may_use(
    ctx: RequestContext, operation: Operation, topic: Topic | None, name: str, *, by_id: bool
) -> bool:
    """Return whether the principal may use a topic; `topic` is None if it does not exist.

    An unknown id is allowed: it has no name that could be denied, and is answered UNKNOWN_TOPIC_ID.
    """
    if topic is not None:
        return ctx.may(operation, ResourceType.TOPIC, topic.name)
    return by_id or ctx.may(operation, ResourceType.TOPIC, name)


REPEATS_MAX: Final = 10
"""A request with more repeated names is rejected, unlike in Kafka; clients usually send none."""


def check_repeats(named: Iterable[Hashable]) -> None:
    """Raise KafkaError(INVALID_REQUEST) if more than `REPEATS_MAX` names are repetitions."""
    names = list(named)
    if len(names) > REPEATS_MAX and len(names) - len(set(names)) > REPEATS_MAX:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, f"More than {REPEATS_MAX} repetitions in one request."
        )


class Mutations:
    """Charges the partitions that one request creates or deletes to the client's quota."""

    def __init__(self, ctx: RequestContext, *, is_strict: bool) -> None:
        """`is_strict`: whether the client understands THROTTLING_QUOTA_EXCEEDED, so it can be
        refused.
        """
        limits = ctx.broker.quotas
        self._quotas = None if limits is None or not limits.is_limiting else limits.quotas
        self._clock = ctx.broker.clock
        self._client = ctx.session.principal.name, ctx.header.client_id or ""
        self._is_strict = is_strict
        self.throttle_ms = 0
        """How long to throttle the client; the dispatcher acts on the value in the response."""

    def take(self, partitions: int) -> None:
        """Charge the quota for creating or deleting `partitions` partitions.

        Raises:
            KafkaError: the quota is exceeded; do not create or delete them.
        """
        if self._quotas is None:
            return
        now_ms = self._clock.monotonic_ms()
        if self._is_strict:
            self.throttle_ms = self._quotas.take_mutations(*self._client, 0, now_ms)
            if self.throttle_ms:
                raise KafkaError(
                    ErrorCode.THROTTLING_QUOTA_EXCEEDED, "The throttling quota has been exceeded."
                )
        debt_ms = self._quotas.take_mutations(*self._client, partitions, now_ms)
        if not self._is_strict:
            self.throttle_ms = debt_ms
