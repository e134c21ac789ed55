"""Groups of a test's broker: their state, waits for a state, forced expiries and rebalances."""

import json
from collections.abc import Callable
from typing import Any, Final, TypedDict, Unpack

from kohort.admin.groups import SHARE, Member, partitions_in
from kohort.broker.app import Broker
from kohort.broker.coordinator.command import Command
from kohort.broker.history.history import RebalanceHistory
from kohort.broker.http.group_pages import GroupPages
from kohort.broker.http.messages import HttpRequest, HttpResponse
from kohort.broker.runtime.deferred import Deferred
from kohort.cli.groups.history import why_lines
from kohort.cli.groups.share import share_lines
from kohort.groups.classic import rebalance
from kohort.groups.classic.leave import ADMIN_REASON
from kohort.groups.classic.membership import ClassicMembership
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.membership import ConsumerMembership
from kohort.groups.consumer.write import ConsumerWrite
from kohort.groups.effects import TimerKey
from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.group import Group
from kohort.groups.history.json_form import parse_text
from kohort.groups.history.model import HistoryRecord, RebalanceRecord
from kohort.groups.member_sessions import SESSION
from kohort.groups.requests import LeaveEntry, Now
from kohort.groups.share.membership import ShareMembership
from kohort.groups.steps import at_once
from kohort.testing.kit.polling import LONG_S, wait_until

SETTLED_WITHIN_S: Final = 5.0
LINES_OF: Final = 5
"""Maximum number of rebalances of a group in the report of a failed test."""


class MemberFilter(TypedDict, total=False):
    """Selects the members that match all of these fields."""

    client_id: str | None
    member_id: str | None
    instance_id: str | None


class WantedGroup(TypedDict, total=False):
    """The keyword arguments of `KafkaGroup.wait`, which documents them."""

    state: str | None
    members: int | None
    lag: int | None
    timeout: float


class Groups:
    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.coordinator = broker.services.groups
        self.pages = GroupPages(
            self.coordinator.host, broker.history, broker.coordinators.get().present_share
        )

    def ids(self) -> list[str]:
        """Return the ids of all groups that exist or have a history."""
        return sorted({*self.coordinator.host.group_ids(), *self.broker.history.groups()})


class KitGroup:
    """The group with this id, existing or not; `KafkaGroup` documents the methods."""

    def __init__(self, name: str, groups: Callable[[], Groups]) -> None:
        """`groups` returns the groups of the running broker; a restart replaces them."""
        self.name = name
        self._groups = groups

    @property
    def _found(self) -> Group | None:
        return self._groups().coordinator.host.group(self.name)

    # Reading.

    @property
    def state(self) -> str | None:
        """Return the state as Kafka names it; None if there is no such group."""
        group = self._found
        return None if group is None else group.describe().state

    @property
    def members(self) -> list[Member]:
        """Return the members, each with its last assigned partitions."""
        group = self._found
        if group is None:
            return []
        return [
            Member(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                host=member.client_host.removeprefix("/"),
                partitions=partitions_in(member.assignment),
            )
            for member in group.describe_members()
        ]

    @property
    def lag(self) -> int:
        """Return the number of unread records: for a partition without a commit all records, for a
        share group those that are not finished.
        """
        return self._known_lag() or 0

    def _known_lag(self) -> int | None:
        """Return `lag`; None if the group does not exist or has no known topics, for example
        while its first members join.
        """
        group = self._found
        if group is None:
            return None
        if isinstance(group.membership, ShareMembership):
            return self._share_lag(group)
        wanted = {topic for (topic, _), _ in group.offsets.items()}
        wanted |= group.subscribed_topics() or frozenset()
        return sum(self._lag_of(group, name) for name in wanted) if wanted else None

    def _share_lag(self, group: Group) -> int | None:
        """Return the number of records that a share group has not finished."""
        partitions = self._groups().broker.coordinators.get().share.partitions
        shares = partitions.of_group(group.group_id)
        return sum(map(partitions.lag, shares)) if shares else None

    def _lag_of(self, group: Group, name: str) -> int:
        topic = self._groups().broker.services.topics.get(name)
        if topic is None:
            return 0
        lag = 0
        for partition in topic.partitions.opened():
            committed = group.committed(name, partition.index, topic.topic_id)
            position = partition.log.log_start_offset
            if committed is not None:
                position = max(position, committed.offset)
            lag += max(0, partition.high_watermark - position)
        return lag

    async def wait(
        self,
        *,
        state: str | None = None,
        members: int | None = None,
        lag: int | None = None,
        timeout: float = LONG_S,  # noqa: ASYNC109 - its TimeoutError describes the state.
    ) -> None:
        """Wait until all conditions hold at once. Raises TimeoutError with the state."""

        def holds() -> bool:
            if state is not None and self.state != state:
                return False
            if members is not None and len(self.members) != members:
                return False
            if lag is None:
                return True
            known = self._known_lag()
            return known is not None and known <= lag

        if not await wait_until(holds, timeout):
            known = self._known_lag()
            raise TimeoutError(
                f"group {self.name!r} is {self.state or 'not there'} with "
                f"members={len(self.members)}, "
                f"lag={'unknown' if known is None else known} "
                f"after {timeout:g} s; wanted: state={state}, members={members}, lag={lag}"
            )

    async def rebalances(self) -> list[RebalanceRecord]:
        """Return the group's rebalance records, oldest first; a running rebalance comes last."""
        history = self._groups().broker.history
        await wait_until(lambda: history.is_caught_up, SETTLED_WITHIN_S)
        records = history_records(history, self.name)
        return [record for record in records if isinstance(record, RebalanceRecord)]

    async def why(self) -> list[str]:
        """Return the lines of `kohort groups why` for the last rebalances."""
        pages = self._groups().pages
        request = HttpRequest("GET", "", f"last={LINES_OF}&kind=rebalance", "", (self.name,))
        answer = _read(await pages.rebalances(request))
        if "error" in answer:
            return [answer["error"]]
        lines = list(why_lines(answer))
        if answer["type"] == SHARE:
            share = HttpRequest("GET", "", "", "", (self.name,))
            lines += ["", *share_lines(_read(await pages.share(share)))]
        return lines

    # Steps.

    async def expire(self, **who: Unpack[MemberFilter]) -> list[str]:
        """End the sessions of the selected members now, as the session timeout would."""

        def step(group: Group, now: Now) -> list[str]:
            chosen = _chosen(group, who)
            membership = group.membership
            if isinstance(membership, ConsumerMembership | ShareMembership):
                sessions = membership.data.sessions
                for member_id in chosen:
                    sessions[member_id].timer_ms = sessions[member_id].deadline_ms = now.ms
                group.on_deadlines([TimerKey(SESSION, member_id) for member_id in chosen], now)
                return chosen
            classic = _classic(group)
            members = [member for member in classic.roster if member.member_id in chosen]
            for member in members:
                member.session_timer_ms = member.session_deadline_ms = now.ms
            group.on_deadlines([member.session_key for member in members], now)
            if any(member_id in classic.roster for member_id in chosen):
                raise ValueError("a member that waits for a response has no session that could end")
            return chosen

        expired: list[str] = await self._step(step)
        return expired

    async def remove(self, **who: Unpack[MemberFilter]) -> list[str]:
        """Remove the selected members, as an administrator would."""
        group = self._found
        if group is None:
            raise LookupError(f"there is no group {self.name!r}")
        if isinstance(group.membership, ShareMembership):
            raise ValueError(f"group {self.name!r} is a share group")  # noqa: TRY004 - as below.
        chosen = _chosen(group, who)
        entries = [LeaveEntry(member_id, None, ADMIN_REASON) for member_id in chosen]
        await self._groups().broker.services.classic_groups.leave(self.name, entries)
        return chosen

    async def enforce(self) -> None:
        """Force a rebalance. Raises LookupError if the group has no members."""

        def step(group: Group, now: Now) -> None:
            if not group.describe().member_count:
                raise LookupError(f"group {self.name!r} has no members")
            trigger = Trigger(TriggerKind.FORCED_BY_REASON, detail="the test")
            membership = group.membership
            if isinstance(membership, ConsumerMembership):
                draft = Draft(membership.data)
                draft.bump(trigger)
                write = ConsumerWrite(draft)
                write.add()
                group.outbox.stage(write)
            else:
                rebalance.cause(_classic(group).data, trigger, now)

        await self._step(step)

    async def _step(self, step: Callable[[Group, Now], Any]) -> Any:  # noqa: ANN401
        """Run `step` as a command of the group; return its result, or raise its exception. Raises
        LookupError if the group does not exist.
        """
        ticket: Deferred[Callable[[], Any]] = Deferred()

        def take(group: Group, now: Now) -> None:
            try:
                returned = step(group, now)
            except (LookupError, ValueError) as error:
                group.outbox.reply(ticket, error)
            else:
                group.outbox.reply(ticket, (returned,))

        absent = LookupError(f"there is no group {self.name!r}")
        command = Command(take, ticket, answer_absent=absent, is_exclusive=True)
        self._groups().coordinator.host.submit(self.name, command)
        outcome: Any = await ticket
        if isinstance(outcome, Exception):
            raise outcome
        return outcome[0]


def _read(response: HttpResponse) -> Any:  # noqa: ANN401 - as JSON has it.
    return json.loads(b"".join(response.body))


def _classic(group: Group) -> ClassicMembership:
    """Return the classic membership. Raises ValueError if the group has another one or none."""
    membership = group.membership
    if not isinstance(membership, ClassicMembership):
        reason = "is a share group" if isinstance(membership, ShareMembership) else "has no members"
        raise ValueError(f"group {group.group_id!r} {reason}")  # noqa: TRY004 - the user's mistake.
    return membership


def _chosen(group: Group, who: MemberFilter) -> list[str]:
    """Return the ids of the members that `who` selects. Raises LookupError if there are none."""
    wanted = {name: value for name, value in who.items() if value is not None}
    member_ids = [
        member.member_id
        for member in group.describe_members()
        if all(getattr(member, name) == value for name, value in wanted.items())
    ]
    if not member_ids:
        conditions = ", ".join(f"{name}={value}" for name, value in wanted.items()) or "any member"
        raise LookupError(f"group {group.group_id!r} has no member with {conditions}")
    return member_ids


def history_records(history: RebalanceHistory, group_id: str) -> list[HistoryRecord]:
    """Return the records of a group, oldest first; a running rebalance comes last."""
    texts = [record.text for record in history.stored_records(group_id)]
    steps = history.open_text_steps(group_id)
    if steps is not None:
        texts.append(at_once(steps))
    return list(map(parse_text, texts))
