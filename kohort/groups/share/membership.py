"""The membership of a share group: the broker assigns, and partitions have any number of members.

The interface for the caller, which does all I/O: the methods of every
:class:`~kohort.groups.membership.Membership`, and the requests to share groups. Steps that may
change something must run alone, with no append in progress; `answer_at_once`, for heartbeats that
change nothing, may be called at any time.
"""

import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import islice
from typing import Final

from kohort.groups.consumer_protocol import encode_share
from kohort.groups.description import DescribedMember, GroupDescription, WaitingFor
from kohort.groups.effects import Cancel, TimerKey
from kohort.groups.events import (
    GroupRestored,
    MemberRef,
    RemovalReason,
    SharePartitionsForgotten,
    Trigger,
    TriggerKind,
)
from kohort.groups.group import Group
from kohort.groups.kinds import GroupKind
from kohort.groups.member_memory import MemberAccount
from kohort.groups.member_sessions import (
    SESSION,
    HeartbeatResult,
    Rejected,
    Retry,
    has_expired,
    take_due,
)
from kohort.groups.membership import OffsetRetention
from kohort.groups.outbox import Answers
from kohort.groups.records import DurableRecord, Generation
from kohort.groups.requests import CommitRequest, Now, Ticket
from kohort.groups.share import assignor
from kohort.groups.share.data import STABLE, ShareData, ShareSettings
from kohort.groups.share.draft import ShareDraft
from kohort.groups.share.heartbeat import changes_nothing, heartbeat_steps, leave
from kohort.groups.share.records import StoredTopic
from kohort.groups.share.requests import OffsetsResult, ShareHeartbeatRequest
from kohort.groups.share.write import ASSIGN_TIMER, ShareWrite, apply, restart_session
from kohort.groups.steps import Steps, at_once
from kohort.groups.topics import Topics
from kohort.protocol.errors import NO_ERROR, ErrorCode

SHARE: Final = "share"
"""The protocol type of share groups."""


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

    def answer_at_once(self, request: ShareHeartbeatRequest, now_ms: int) -> HeartbeatResult | None:
        """Answer a heartbeat that changes nothing; None if it must be queued as a command, because
        it may change the group. May be called while an append is in progress.
        """
        member = changes_nothing(self.data, request)
        if member is None:
            return None
        restart_session(self.data, member.member_id, now_ms)
        return HeartbeatResult(
            member_id=member.member_id,
            epoch=member.epoch,
            heartbeat_interval_ms=self.data.settings.heartbeat_interval_ms,
        )

    def heartbeat(
        self,
        request: ShareHeartbeatRequest,
        ticket: Ticket,
        now: Now,
        *,
        begins: Group | None = None,
    ) -> Steps[None]:
        """Execute a heartbeat whose fields `check_request` has accepted. Answer:
        HeartbeatResult.

        Args:
            request: the heartbeat.
            ticket: answered when its changes are durable.
            now: the time of the step.
            begins: an unused group, which becomes a share group once the changes are durable.
        """
        draft = ShareDraft(self.data)
        try:
            if request.epoch < 0:
                result = yield from leave(draft, request)
            else:
                result = yield from heartbeat_steps(draft, request, now)
        except Rejected as rejected:
            outbox = self.data.outbox
            outbox.reply(ticket, rejected.result)
            if begins is None:
                client = MemberRef("", None, request.client_id, request.client_host)
                error, reason = rejected.result.error, rejected.refusal
                self.data.refusals.note_client(outbox, client, error, reason, now.ms)
            return
        self._store(draft, Answers(ticket, result, HeartbeatResult), now, begins)

    def alter_offsets(
        self,
        topics: Mapping[bytes, StoredTopic],
        alter: Callable[[int], Steps[None]],
        ticket: Ticket,
        now: Now,
        *,
        begins: Group | None = None,
    ) -> Steps[None]:
        """Execute an AlterShareGroupOffsets; initialize partitions whose state does not exist.
        Answer: OffsetsResult.

        Args:
            topics: partitions that exist, by topic id.
            alter: changes the state of the partitions; its argument is the state epoch. Called only
                if the group has no members, before the group's record is appended.
            ticket: answered when the record is durable.
            now: the time of the step.
            begins: an unused group, which becomes a share group once the record is durable.
        """
        state = self.data.state
        if state.members:
            self.data.outbox.reply(ticket, _NOT_EMPTY)
            return
        yield from alter(state.epoch)
        draft = ShareDraft(self.data)
        for topic_id, topic in topics.items():
            draft.initialize(topic_id, topic)
        answers = Answers(ticket, OffsetsResult(), OffsetsResult)
        self._store(draft, answers, now, begins)

    def delete_offsets(self, topic_ids: Sequence[bytes], ticket: Ticket, now: Now) -> None:
        """Execute a DeleteShareGroupOffsets: forget the state of these topics. Answer:
        OffsetsResult, with the topics that have no state.
        """
        state = self.data.state
        if state.members:
            self.data.outbox.reply(ticket, _NOT_EMPTY)
            return
        draft = ShareDraft(self.data)
        missing = frozenset(topic_ids) - state.initialized.keys()
        for topic_id in topic_ids:
            draft.state.initialized.pop(topic_id, None)
        result = OffsetsResult(missing=missing)
        self._store(draft, Answers(ticket, result, OffsetsResult), now)

    def forget_topics(self, now: Now) -> None:
        """Forget the state of partitions whose topics do not exist."""
        draft = ShareDraft(self.data)
        draft.forget_topics()
        self._store(draft, None, now)

    @property
    def has_lost_topics(self) -> bool:
        """Whether `forget_topics` would change something."""
        name_of = self.data.topics.name_of
        return any(name_of(topic_id) is None for topic_id in self.data.state.initialized)

    def _store(
        self,
        draft: ShareDraft,
        answers: Answers | None,
        now: Now,
        begins: Group | None = None,
    ) -> None:
        """Store the changes of a step, and answer when they are durable; at once if there are
        none.
        """
        data = self.data
        records = draft.state.records_since(data.state, data.group_id)
        if records:
            began = None if begins is None else (begins, self)
            data.outbox.stage(ShareWrite(draft, records, answers, began))
            return
        apply(draft, now)
        if answers is not None:
            answers.give(data.outbox, NO_ERROR)

    # Reads.

    @property
    def initialized(self) -> Mapping[bytes, StoredTopic]:
        """The partitions whose state exists, by topic id."""
        return self.data.state.initialized

    # Offsets: a share group has none.

    def validate_commit(
        self, request: CommitRequest, now: Now, *, transactional: bool
    ) -> ErrorCode:
        """Refuse every commit."""
        del request, now, transactional
        return ErrorCode.GROUP_ID_NOT_FOUND

    def validate_fetch(self, member_id: str | None, member_epoch: int) -> ErrorCode:
        """Accept every OffsetFetch; a share group has no offsets to return."""
        del member_id, member_epoch
        return NO_ERROR

    def subscribed_topics(self) -> frozenset[str]:
        return self.data.state.subscribed_topics()

    def offset_retention(self) -> OffsetRetention:
        return OffsetRetention()

    # Records.

    def restore(
        self, records: Sequence[DurableRecord], now: Now, earlier: Iterable[Generation]
    ) -> None:
        data = self.data
        state = data.state
        for record in records:
            state.apply(record)
        data.account.add(len(state.members), state.size())
        data.since_ms = now.wall_ms
        data.outbox.note(GroupRestored(state.epoch, SHARE, None, {}, tuple(earlier)))

    def start(self, now: Now) -> None:
        """Start all sessions with their full duration. A target that was not computed yet is
        computed by the next heartbeat.
        """
        for member_id in self.data.state.members:
            restart_session(self.data, member_id, now.ms)

    def tombstones(self) -> tuple[DurableRecord, ...]:
        return self.data.state.tombstones(self.data.group_id)

    # Time, and the end.

    def on_deadlines(self, keys: Iterable[TimerKey], now: Now) -> None:
        data = self.data
        draft = ShareDraft(data)
        keys = tuple(keys)
        is_interval_over = False
        for key in keys:
            if key.kind != SESSION:
                is_interval_over |= take_due(data.deadlines, key, now.ms) and key == ASSIGN_TIMER
                continue
            member = data.state.members.get(key.member_id)
            if member is None:
                continue
            if has_expired(data.sessions, data.outbox, key.member_id, now.ms):
                cause = Trigger(
                    TriggerKind.SESSION_EXPIRED,
                    member.ref,
                    removed=(member.member_id,),
                    timeout_ms=data.settings.session_timeout_ms,
                )
                at_once(draft.remove(member, RemovalReason.SESSION_EXPIRED, cause))
        if is_interval_over and draft.is_due(now) and draft.is_small:
            # The target of a large group is computed by the next heartbeat, in many steps.
            at_once(draft.target_steps(now))
        if draft.state != data.state:
            self._store(draft, Retry(data.sessions, data.deadlines, keys, now), now)

    def end(self, error: ErrorCode, now: Now) -> None:
        del now
        self.data.is_dead = True
        if error is ErrorCode.GROUP_ID_NOT_FOUND:
            # The group is removed, and not only unloaded.
            gone = tuple(
                (topic_id, number)
                for topic_id, topic in self.initialized.items()
                for number in topic.partitions
            )
            if gone:
                self.data.outbox.note(SharePartitionsForgotten(gone))

    def close(self) -> None:
        data = self.data
        for member_id in data.sessions:
            data.outbox.emit(Cancel(TimerKey(SESSION, member_id)))
        for key in data.deadlines:
            data.outbox.emit(Cancel(key))
        data.sessions.clear()
        data.deadlines.clear()
        data.account.add(-len(data.state.members), -data.state.size())
        data.account = MemberAccount()

    # Reports.

    @property
    def is_empty(self) -> bool:
        return not self.data.state.members

    @property
    def is_unused(self) -> bool:
        """False: an empty share group does not expire."""
        return False

    def gauges(self) -> Mapping[str, int]:
        return {}

    def describe(self) -> GroupDescription:
        data = self.data
        return GroupDescription(
            data.group_id,
            GroupKind.SHARE,
            data.state_name,
            SHARE,
            data.state.epoch,
            assignor.NAME,
            since_ms=data.since_ms,
            member_count=len(data.state.members),
            is_stable=data.state_name == STABLE,
        )

    def describe_members(self, count_max: int | None = None) -> Sequence[DescribedMember]:
        data = self.data
        timeout_ms = data.settings.session_timeout_ms
        return [
            DescribedMember(
                member.member_id,
                None,
                member.client_id,
                member.client_host,
                timeout_ms,
                -1,
                (),
                b"",
                encode_share(data.topics, member.assigned),
            )
            for member in islice(data.state.members.values(), count_max)
        ]

    def describe_waiting(self) -> WaitingFor | None:
        """Return None: a share group does not wait for its members before it assigns."""
        return None


_NOT_EMPTY: Final = OffsetsResult(ErrorCode.NON_EMPTY_GROUP, "The group is not empty.")
