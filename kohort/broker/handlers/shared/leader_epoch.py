"""The leader-epoch check (KIP-320) that several APIs share. Not an API of its own."""

from __future__ import annotations

from kohort.protocol.errors import ErrorCode


def check_leader_epoch(clients_epoch: int, leader_epoch: int) -> ErrorCode:
    """What a request with this ``current_leader_epoch`` is answered; -1 skips the check.

    Args:
        leader_epoch: of the partition.
    """
    if clients_epoch in {-1, leader_epoch}:
        return ErrorCode.NONE
    if clients_epoch < leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    return ErrorCode.UNKNOWN_LEADER_EPOCH
