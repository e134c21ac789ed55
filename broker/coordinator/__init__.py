"""Consumer groups while the broker runs: the shells around :mod:`broker.core.group`."""

from broker.coordinator.coordinator import GroupCoordinator
from broker.coordinator.offsets_log import OffsetsLog

__all__ = ["GroupCoordinator", "OffsetsLog"]
