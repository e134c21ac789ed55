"""Consumer groups while the broker runs: the shells around :mod:`broker.core.group`."""

from broker.coordinator.coordinator import CoordinatorConfig, GroupCoordinator, GroupObserver
from broker.coordinator.offsets_log import OffsetsLog

__all__ = ["CoordinatorConfig", "GroupCoordinator", "GroupObserver", "OffsetsLog"]
