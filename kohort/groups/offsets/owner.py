"""What committed offsets need of the group that they belong to."""

from typing import Protocol

from kohort.groups.config import GroupConfig
from kohort.groups.offsets.table import OffsetTable
from kohort.groups.outbox import Outbox
from kohort.groups.requests import Now
from kohort.groups.states import GroupState


class OffsetsOwner(Protocol):
    """A group of any kind."""

    @property
    def group_id(self) -> str: ...
    @property
    def config(self) -> GroupConfig: ...
    @property
    def offsets(self) -> OffsetTable: ...
    @property
    def outbox(self) -> Outbox: ...
    @property
    def state(self) -> GroupState: ...
    @property
    def protocol_type(self) -> str | None:
        """The group's protocol type; None for a group that has never had members."""
        ...

    @property
    def state_timestamp_ms(self) -> int:
        """Wall-clock time of the last change of state; -1 if there was none."""
        ...

    @property
    def has_unused_ids(self) -> bool:
        """Whether a client was given an id that it has not joined with yet."""
        ...

    def subscribed_topics(self) -> frozenset[str] | None:
        """The topics that the members read; None if unknown, to be treated as all topics."""
        ...

    def end(self, now: Now) -> None:
        """Move to DEAD: the group's tombstone is durable."""
        ...
