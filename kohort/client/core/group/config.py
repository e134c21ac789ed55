"""The settings of a member of a group."""

from __future__ import annotations

from typing import NamedTuple

from kohort.protocol.join_reason import JoinReason


class MembershipConfig(NamedTuple):
    """The settings of a member, under Kafka's names; `max_poll_interval_ms` is the rebalance
    timeout.
    """

    group_id: str
    group_instance_id: str | None = None
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 3_000
    max_poll_interval_ms: int = 300_000
    rack: str | None = None
    first_reason: JoinReason = JoinReason.RESTART
    """The reason sent with the first join of this process: RESTART or UPGRADE."""
    remote_assignor: str | None = None

    @property
    def is_static(self) -> bool:
        return self.group_instance_id is not None
