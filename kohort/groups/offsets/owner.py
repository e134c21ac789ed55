"""What committed offsets need of the group that they belong to."""

from typing import Protocol

from kohort.groups.config import GroupConfig
from kohort.groups.membership import Membership
from kohort.groups.offsets.table import OffsetTable
from kohort.groups.outbox import Outbox
from kohort.groups.records import DurableRecord
from kohort.groups.requests import Now


class OffsetsOwner(Protocol):
    """See :class:`kohort.groups.group.Group`."""

    group_id: str
    config: GroupConfig
    offsets: OffsetTable
    outbox: Outbox
    membership: Membership | None
    is_dead: bool

    @property
    def is_empty(self) -> bool: ...

    def tombstones(self) -> tuple[DurableRecord, ...]: ...

    def end(self, now: Now) -> None: ...
