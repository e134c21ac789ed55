"""Polls the brokers for the rebalancing groups and their members."""

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from time import monotonic
from typing import Final

from kohort.admin.cluster import Cluster
from kohort.client.net.blocking import BlockingConnection
from kohort.groups.classic.states import ClassicState
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    ListedGroup,
    ListGroupsRequest,
    ListGroupsResponse,
)
from kohort.watch.core.followed import Poll
from kohort.watch.core.watcher import Watcher

GROUPS_AT_ONCE: Final = 500
"""Maximum number of groups in one DescribeGroups request."""

DENIALS: Final = frozenset(
    {ErrorCode.GROUP_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED}
)
"""Error codes if the user may not describe a group, or one of a consumer group's topics."""

_VISIBLE_S: Final = 30.0
"""Interval at which all groups are listed."""

_REBALANCING: Final = [
    ClassicState.PREPARING_REBALANCE.value,
    ClassicState.COMPLETING_REBALANCE.value,
]
_STATES_SINCE: Final = 4
"""First version of ListGroups that filters by state (KIP-518)."""


@dataclass(frozen=True, slots=True)
class NotAtRest:
    """The groups that may be rebalancing after a poll: those that the poll showed rebalancing, and
    those that the user may not see.
    """

    busy: Collection[str]
    visible: Collection[str]

    def __contains__(self, group: object) -> bool:
        return group in self.busy or group not in self.visible


class Poller:
    """Lists rebalancing groups at each poll, all groups every 30 s: little work for a broker."""

    def __init__(self, cluster: Cluster, now_ms: Callable[[], int]) -> None:
        """`now_ms` returns the time by the clock of the coordinators, or a little less."""
        self._cluster = cluster
        self._now_ms = now_ms
        self._visible: frozenset[str] = frozenset()
        self._visible_until_s = -1.0
        self.can_poll = True
        """Whether the brokers can filter groups by state (Kafka 2.6)."""
        self.is_busy = False
        """Whether the last poll showed any rebalance."""
        self.denials: set[int] = set()
        """Authorization error codes in DescribeGroups responses."""
        self.is_blind = False
        """Whether ListGroups returned no group: none exists, or the user may describe none."""

    def poll(self, watcher: Watcher) -> None:
        """Poll all brokers; report rebalancing groups to `watcher`. Raises DisconnectedError."""
        brokers = self._cluster.brokers()
        if any(broker.versions.best(ListGroupsRequest) < _STATES_SINCE for broker in brokers):
            self.can_poll = False
            return
        self._list_visible(brokers)
        # Groups that are not listed below were not rebalancing at some time after this.
        began_ms = self._now_ms()
        busy: set[str] = set()
        is_complete = True
        for broker in brokers:
            groups = listed(self._cluster, broker, _REBALANCING)
            if groups is None:
                is_complete = False
                continue
            ids = [group.group_id for group in groups]
            busy.update(ids)
            for group in self._describe(broker, ids):
                members = frozenset([member.member_id for member in group.members])
                watcher.poll(group.group_id, Poll(self._now_ms(), group.group_state, members))
        self.is_busy = bool(busy)
        if is_complete:
            watcher.rest(began_ms, NotAtRest(busy, self._visible))
        else:
            watcher.forget_polls()

    def _list_visible(self, brokers: Sequence[BlockingConnection]) -> None:
        """List the groups that the user may see: ListGroups leaves the others out."""
        if monotonic() < self._visible_until_s:
            return
        answers = [listed(self._cluster, broker) for broker in brokers]
        self._visible = frozenset([group.group_id for of in answers for group in of or ()])
        self.is_blind = not self._visible
        self._visible_until_s = monotonic() + _VISIBLE_S

    def _describe(self, broker: BlockingConnection, ids: Sequence[str]) -> Iterator[DescribedGroup]:
        for group in described(self._cluster, broker, ids):
            if group.error_code in DENIALS:
                self.denials.add(group.error_code)
            # Skip a group whose coordinator has moved: the answer has no members.
            elif not group.error_code and group.group_state != ClassicState.DEAD.value:
                yield group


def listed(
    cluster: Cluster, broker: BlockingConnection, states: Sequence[str] = ()
) -> list[ListedGroup] | None:
    """Return the groups of a broker that the user may see; None if the broker returns an error, as
    while it loads groups. Raises DisconnectedError.
    """
    request = ListGroupsRequest(states_filter=list(states))
    answer: ListGroupsResponse = cluster.ask(broker, request)
    return None if answer.error_code else answer.groups


def described(
    cluster: Cluster, broker: BlockingConnection, ids: Sequence[str]
) -> Iterator[DescribedGroup]:
    """Yield the descriptions of classic groups. Raises DisconnectedError."""
    for begin in range(0, len(ids), GROUPS_AT_ONCE):
        request = DescribeGroupsRequest(groups=list(ids[begin : begin + GROUPS_AT_ONCE]))
        yield from cluster.ask(broker, request).groups
