"""The inputs and results of assignors."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kohort.groups.steps import Steps

Assigned: TypeAlias = Mapping[bytes, Sequence[int]]
"""Partition numbers by topic id."""


class AssignorMember(NamedTuple):
    """A member as assignors see it."""

    member_id: str
    instance_id: str | None
    topics: frozenset[bytes]
    """Ids of the existing topics that it subscribes to."""
    assigned: Assigned
    """Its present target assignment."""


class Assign(Protocol):
    """An assignor."""

    def __call__(
        self,
        members: Sequence[AssignorMember],
        topics: Mapping[bytes, int],
        *,
        homogeneous: bool,
    ) -> Steps[dict[str, dict[bytes, list[int]]]]:
        """Return the partitions of each member by topic id, ascending or in order of assignment.

        Args:
            members: in the order in which ties are decided.
            topics: the number of partitions of each subscribed topic by its id, in order.
            homogeneous: whether all members have the same subscription.
        """
        ...
