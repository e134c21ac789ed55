"""The parts of a membership that both group protocols share: the coordinator, backoff, errors for
polls, and the reason to join.
"""

from enum import Enum
from typing import Final

from kohort.client.core.backoff import Backoff
from kohort.client.core.errors import (
    ConsumerError,
    IllegalStateError,
    InconsistentProtocolError,
    error_for,
    is_refusal,
)
from kohort.client.core.group.config import MembershipConfig
from kohort.client.core.group.identity import NO_MEMBER
from kohort.client.core.group.rejoin import Rejoin, combined
from kohort.client.core.group.subscription import Subscription
from kohort.protocol.errors import ErrorCode
from kohort.protocol.join_reason import JoinReason


class PollErrors:
    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self.lasting: ConsumerError | None = None
        """The error that every poll raises until the application subscribes again; None if there is
        none.
        """
        self._refusal: ConsumerError | None = None
        """The error that the next poll raises; the poll after it retries."""
        self.is_due = False
        """Whether the next poll raises an error. An attribute, because every poll reads it."""

    def raise_next(self) -> None:
        """Raise the error that is due, if any. A refusal is raised only once, because the broker
        may accept the next request.
        """
        if self.lasting is not None:
            raise self.lasting
        refusal, self._refusal, self.is_due = self._refusal, None, False
        if refusal is not None:
            raise refusal

    def fence(self, doing: str, code: ErrorCode) -> None:
        """Make every poll raise: another process uses the member's instance id."""
        self.lasting = error_for(code, f"{doing} in group {self._group_id}")
        self.is_due = True

    def refuse(self, doing: str, code: ErrorCode) -> None:
        """Make the next poll raise the error for a rejected request."""
        self.refuse_for(error_for(code, f"{doing} in group {self._group_id}"))

    def refuse_for(self, error: ConsumerError) -> None:
        """Make the next poll raise this error."""
        self._refusal = error
        self.is_due = True

    def refuse_protocol(self, name: str | None) -> None:
        """Make the next poll raise: the group uses a protocol that this member does not support."""
        self.refuse_for(
            InconsistentProtocolError(
                f"the group uses {name}, which this consumer does not support; compare"
                " partition_assignment_strategy of all members"
            )
        )

    def clear(self) -> None:
        """Forget all errors, because the application has subscribed again."""
        self.lasting = self._refusal = None
        self.is_due = False


ENFORCED_TEXT: Final = "the application asked for it"

_FIRST_TEXTS: Final = {JoinReason.RESTART: "started", JoinReason.UPGRADE: "upgrade"}


class MemberState(Enum):
    UNJOINED = "unjoined"
    JOINING = "joining"
    """Only in the consumer group protocol: the first heartbeat has not been answered."""
    RECONCILING = "reconciling"
    """Only in the consumer group protocol: taking over a new assignment."""
    PREPARING_REBALANCE = "preparing rebalance"
    """A JoinGroup is pending; it keeps the member alive without heartbeats."""
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"


class BaseMembership:
    def __init__(
        self, config: MembershipConfig, *, subscription: Subscription, backoff: Backoff
    ) -> None:
        self.config = config
        self.state = MemberState.UNJOINED
        self.identity = NO_MEMBER
        self.trouble = ""
        """The error in the coordinator's last response; empty after a successful one."""
        self.has_joined = False
        """Whether the consumer has ever been a member."""
        self._subscription = subscription
        self._backoff = backoff
        self._is_coordinator_known = False
        self._wait_until_ms = 0
        self._errors = PollErrors(config.group_id)
        self._rejoin: Rejoin | None = self._first_rejoin()
        self._are_topics_fresh = False

    # Results of actions.

    def coordinator_found(self) -> None:
        """Record that the coordinator was found and is reachable."""
        self._is_coordinator_known = True
        self.trouble = ""
        self._backoff.succeed()

    def coordinator_failed(self, code: ErrorCode, now_ms: int) -> None:
        """Process a failed FindCoordinator; NETWORK_EXCEPTION if there was no response."""
        self.trouble = f"FindCoordinator: {code.name}"
        if is_refusal(code):
            error = error_for(code, f"finding the coordinator of {self.config.group_id}")
            self._errors.refuse_for(error)
        else:
            self._wait_until_ms = now_ms + self._backoff.fail()

    def round_failed(self, now_ms: int) -> None:
        """Back off after an action failed with an error that the next poll raises. An application
        that keeps polling must not retry at once: a user with a wrong password could be locked out.
        """
        self._wait_until_ms = now_ms + self._backoff.fail()

    def topics_refreshed(self) -> None:
        """Record that the pattern was matched with the existing topics."""
        self._are_topics_fresh = True

    # Other events.

    def enforce_rebalance(self, reason: str | None = None, *, state_changed: bool = False) -> None:
        """Request a rebalance (KIP-568) with the next join or heartbeat, stating the reason
        (KIP-800). Sends nothing.

        Raises:
            IllegalStateError: partitions are not assigned by a group.
        """
        if not self._subscription.is_by_group:
            raise IllegalStateError(
                "enforce_rebalance() needs a subscription by a group; call subscribe() first"
            )
        kind = JoinReason.ASSIGNOR_STATE_CHANGE if state_changed else JoinReason.ENFORCED
        self._want(kind, reason or ENFORCED_TEXT)

    def clear_errors(self) -> None:
        """Clear errors after a new subscription, so that a fenced member can join again."""
        self._errors.clear()

    # State for observers.

    @property
    def failure(self) -> ConsumerError | None:
        """The error that every poll raises until the application subscribes again, or None."""
        return self._errors.lasting

    @property
    def wish(self) -> str:
        """The reason to join or to request another assignment; empty if there is none."""
        return "" if self._rejoin is None else f"{self._rejoin.reason.name}: {self._rejoin.text}"

    # For subclasses.

    def _first_rejoin(self) -> Rejoin:
        """Return the reason for the first join of a process, or for one after leaving."""
        reason = JoinReason.RESTART if self.has_joined else self.config.first_reason
        is_static = self.config.group_instance_id is not None
        text = "restarted" if is_static and reason is JoinReason.RESTART else _FIRST_TEXTS[reason]
        return Rejoin(reason, text)

    def _want(self, reason: JoinReason, text: str) -> None:
        self._rejoin = combined(self._rejoin, Rejoin(reason, text))
