"""The identity under which offsets are committed: whether a member may commit now, and what a
rejected commit means for its membership.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from kohort.client.core.errors import (
    CommitError,
    CommitFailedError,
    RebalanceInProgressError,
    StaleEpochError,
)
from kohort.client.core.group.base_membership import MemberState
from kohort.client.core.group.consumer_membership import ConsumerMembership
from kohort.client.core.group.heartbeat import Finding, FindingKind
from kohort.client.core.group.identity import NO_MEMBER, Identity
from kohort.client.core.group.membership import Membership
from kohort.protocol.errors import ErrorCode


class Committer:
    """Provides the identity to commit with. This base class, for `assign`, returns NO_MEMBER."""

    @property
    def is_joining(self) -> bool:
        """Whether a pending JoinGroup may be blocking the connection for group requests."""
        return False

    def commit_identity(self) -> Identity:
        """Return the identity to commit with. Raises CommitError."""
        return NO_MEMBER

    def check_still(self, requested: Identity) -> Identity:
        """Return the identity to send a commit with. Raises CommitError if it is outdated."""
        return requested

    def fetch_identity(self) -> Identity:
        """Return the identity to fetch offsets with; NO_MEMBER outside of KIP-848."""
        return NO_MEMBER

    def commit_refused(self, sent: Identity, code: ErrorCode) -> CommitError | None:  # noqa: ARG002
        """Handle the rejection of the identity `sent`; return the error to raise."""
        return CommitFailedError(
            f"the group accepts no commits from non-members ({code.name}) while it has members;"
            " use a separate group_id for this consumer",
            code,
        )


class MemberCommits(Committer):
    """Provides a member's identity to commit with, if the member may commit now."""

    def __init__(
        self,
        membership: Membership | ConsumerMembership,
        *,
        is_joining: Callable[[], bool],
        learn: Callable[[], None],
        on_changed: Callable[[], None],
    ) -> None:
        """`learn` processes heartbeat findings; `on_changed` is called when membership changes."""
        self._membership = membership
        self._is_joining = is_joining
        self._learn = learn
        self._on_changed = on_changed

    @property
    def is_joining(self) -> bool:
        return self._is_joining()

    def commit_identity(self) -> Identity:
        """Return the identity to commit with.

        Raises:
            RebalanceInProgressError: no commit is possible before the rebalance is over.
            CommitFailedError: this consumer is not a member.
        """
        self._learn()
        if self._membership.may_commit:
            return self._membership.identity
        raise self._not_now()

    def fetch_identity(self) -> Identity:
        """Return the member id and epoch in the consumer group protocol, so that the coordinator
        rejects the fetch of a removed member; otherwise NO_MEMBER.
        """
        self._learn()
        membership = self._membership
        is_member = isinstance(membership, ConsumerMembership) and membership.is_member
        return membership.identity if is_member else NO_MEMBER

    def check_still(self, requested: Identity) -> Identity:
        """Return the identity for sending a commit that was requested under `requested`.

        Raises:
            RebalanceInProgressError: the group rebalanced, and this member took part.
            CommitFailedError: the group rebalanced without this member.
        """
        self._learn()
        if (identity := self._membership.renewed(requested)) is not None:
            return identity
        if self._membership.identity.is_valid:
            raise RebalanceInProgressError(
                "the group rebalanced before this commit completed, so others may read its"
                " partitions; commit the partitions that are still assigned again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        raise self._not_now()

    def _not_now(self) -> CommitError:
        membership = self._membership
        if membership.identity.is_valid or self.is_joining:
            return RebalanceInProgressError(
                "the group is rebalancing; poll until that is over, then commit again",
                ErrorCode.REBALANCE_IN_PROGRESS,
            )
        if not membership.has_joined:
            return CommitFailedError(
                "this consumer has not joined its group yet; poll first, then commit",
                ErrorCode.UNKNOWN_MEMBER_ID,
            )
        return CommitFailedError(
            "this consumer is no longer a member of the group, so others may read its partitions;"
            " polls were too infrequent (max_poll_interval_ms) or heartbeats failed"
            " (session_timeout_ms)",
            ErrorCode.UNKNOWN_MEMBER_ID,
        )

    def commit_refused(self, sent: Identity, code: ErrorCode) -> CommitError | None:
        """Handle the rejection of the identity `sent`. Returns the error to raise; None: raise
        the default error for `code`.
        """
        membership = self._membership
        is_same = sent == membership.identity
        state = membership.state
        if code is ErrorCode.STALE_MEMBER_EPOCH and membership.renewed(sent) is not None:
            return StaleEpochError(
                "the member's epoch has changed; its next heartbeat learns the new one", code
            )
        in_progress = RebalanceInProgressError(
            f"the group is rebalancing ({code.name}); poll until that is over, then commit again",
            code,
        )
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            membership.rebalance_noticed(sent)
            self._on_changed()
            return in_progress
        if state is MemberState.PREPARING_REBALANCE:
            return in_progress  # The pending JoinGroup response decides.
        if not is_same and membership.identity.is_valid:
            # The group rebalanced, with this member, while the commit was in flight.
            return in_progress
        if code is ErrorCode.FENCED_INSTANCE_ID and is_same:
            membership.findings([Finding(FindingKind.FENCED, sent, code)])
            self._on_changed()
            return None
        keeps_id = code is ErrorCode.ILLEGAL_GENERATION
        if membership.lost(sent, keeps_id=keeps_id, why=code.name):
            self._on_changed()
        return CommitFailedError(
            f"the group has rebalanced without this member ({code.name}), so others may read its"
            " partitions; poll more often, or set max_poll_interval_ms higher",
            code,
        )


class CommitIdentity(NamedTuple):
    """The member and generation that requested a commit. Each attempt is sent under them, or under
    a later epoch if the member has given up no partition since.

    The coordinator would accept the offsets under any later identity, too, but they could overwrite
    the commit of another member that owned the partitions meanwhile. Without `topic_ids`, a deleted
    topic's offset could be stored for a new topic of the same name.
    """

    committer: Committer
    identity: Identity
    topic_ids: Mapping[str, bytes]
    """The topic ids in the metadata when the commit was made; topics without an id are committed by
    name."""
