"""A coordinator of groups over any log, for tests that run groups without a whole broker."""

import itertools
from collections.abc import Sequence

from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator
from kohort.broker.coordinator.host import GroupHost, GroupObserver
from kohort.broker.coordinator.offsets_log import OffsetsLog
from kohort.broker.core.purgatory import Purgatory
from kohort.broker.runtime.clock import Clock
from kohort.groups.classic.data import ClassicData
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.config import GroupConfig
from kohort.groups.kinds import GroupKind
from tests.support.memory_logs import MemoryOffsetsLog


def report(doing: str, error: Exception) -> None:
    """For a purgatory: what goes wrong in it fails the test."""
    raise AssertionError(doing) from error


def group_coordinator(
    purgatory: Purgatory,
    clock: Clock,
    *,
    log: OffsetsLog | None = None,
    initial_delay_ms: int = 0,
    observers: Sequence[GroupObserver] = (),
) -> GroupCoordinator:
    """Not started. Its log is one in memory unless given; its members are named `c-1`, `c-2` if `c`
    is their client's id.
    """
    ids = itertools.count(1)
    config = GroupConfig(initial_rebalance_delay_ms=initial_delay_ms)
    return GroupCoordinator(
        GroupHost(
            CoordinatorConfig(config),
            log=log or MemoryOffsetsLog(),
            purgatory=purgatory,
            clock=clock,
            new_membership={
                GroupKind.CLASSIC: lambda group: ClassicMembership(
                    ClassicData(group, new_member_id=lambda prefix: f"{prefix}-{next(ids)}")
                )
            },
            observers=observers,
        )
    )
