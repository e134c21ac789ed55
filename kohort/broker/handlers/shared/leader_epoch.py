"""The leader-epoch check (KIP-320) that several APIs share. Not an API of its own."""

from __future__ import annotations

from kohort.broker.topics.partition import LEADER_EPOCH
from kohort.protocol.errors import ErrorCode


def check_leader_epoch(clients_epoch: int) -> ErrorCode:
    """What a request with this ``current_leader_epoch`` is answered; -1 skips the check."""
    if clients_epoch in {-1, LEADER_EPOCH}:
        return ErrorCode.NONE
    if clients_epoch < LEADER_EPOCH:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
