"""The group coordinator: adds I/O and timers to the rules in :mod:`kohort.groups`."""

from kohort.broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator, GroupObserver
from kohort.broker.coordinator.offsets_log import OffsetsLog

__all__ = ["CoordinatorConfig", "GroupCoordinator", "GroupObserver", "OffsetsLog"]
