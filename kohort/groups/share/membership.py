"""The membership of a share group: the broker assigns, and partitions have any number of members.

Steps that may change something must run alone, with no append in progress; `answer_at_once` is for
all others.
"""

import weakref
from collections.abc import Callable, Mapping, Sequence

from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.requests import Now, Ticket
from kohort.groups.share.data import ShareData
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.requests import (
    ShareHeartbeatRequest,
    ShareHeartbeatResult,
)
from kohort.groups.share.settings import ShareSettings
from kohort.groups.steps import Steps
from kohort.groups.topics import Topics


class ShareMembership:
    """The membership of one share group; its state is in `data`."""

    __slots__ = ("_group", "data")

    kind = GroupKind.SHARE

    def __init__(
        self,
        group: Group,
        topics: Topics,
        read_settings: Callable[[str], ShareSettings],
        account: MemberAccount,
    ) -> None:
        """`read_settings` returns the settings of a group by its id. Only a weak reference to
        `group` is kept.
        """
        self._group = weakref.ref(group)
        self.data = ShareData(group.group_id, group.outbox, topics, read_settings, account)

    # Requests.

    def answer_at_once(
        self, request: ShareHeartbeatRequest, now_ms: int
    ) -> ShareHeartbeatResult | None:
        """Answer a heartbeat that changes nothing; None if it has to be executed as a step. May be
        called while an append is in progress.
        """
        raise NotImplementedError

    def heartbeat(
        self,
        request: ShareHeartbeatRequest,
        ticket: Ticket,
        now: Now,
        *,
        begins: Group | None = None,
    ) -> Steps[None]:
        """Execute a heartbeat whose fields `check_request` has accepted. Answer:
        ShareHeartbeatResult.

        Args:
            request: the heartbeat.
            ticket: answered when its changes are durable.
            now: the time of the step.
            begins: the group whose membership this becomes with this heartbeat.
        """
        raise NotImplementedError

    def alter_offsets(
        self,
        topics: Mapping[bytes, StoredTopic],
        alter: Callable[[int], None],
        ticket: Ticket,
        *,
        begins: Group | None = None,
    ) -> None:
        """Execute an AlterShareGroupOffsets: initialize the partitions of existing topics that are
        not. Answer: OffsetsResult.

        Args:
            topics: the partitions, by topic id.
            alter: changes the state of the partitions, and gets its state epoch; called if the
                group may be altered, before the group's record is appended.
            ticket: answered when the record is durable.
            begins: the group whose membership this becomes with the request.
        """
        raise NotImplementedError

    def delete_offsets(self, topic_ids: Sequence[bytes], ticket: Ticket) -> None:
        """Execute a DeleteShareGroupOffsets. Answer: OffsetsResult."""
        raise NotImplementedError

    def forget_topics(self) -> None:
        """Forget the state of partitions whose topics do not exist."""
        raise NotImplementedError

    # Reads of the partitions that have state.

    @property
    def initialized(self) -> Mapping[bytes, StoredTopic]:
        """The partitions that the group has state of, by topic id."""
        return self.data.state.initialized
