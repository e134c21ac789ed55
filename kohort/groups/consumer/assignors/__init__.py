"""The assignors of consumer groups, which produce the same results as Kafka's (KIP-848).

An assignor is a pure function: ordered members and topics in, partitions by member out. Ties go to
the member, or topic, that comes first. It runs in steps, because the partitions of thousands of
members take longer than other requests should wait.
"""

from collections.abc import Mapping
from typing import Final

from kohort.groups.consumer.assignors.interface import Assign, AssignorMember
from kohort.groups.consumer.assignors.range import assign_ranges
from kohort.groups.consumer.assignors.uniform import assign_uniformly

ASSIGNORS: Final[Mapping[str, Assign]] = {"uniform": assign_uniformly, "range": assign_ranges}
"""Assignors by the name that members request."""

__all__ = ["ASSIGNORS", "AssignorMember"]
