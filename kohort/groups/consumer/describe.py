"""Descriptions of members, and of what a rebalance waits for."""

from collections.abc import Iterable, Mapping
from itertools import chain, islice
from typing import Final

from kohort.groups.consumer import sessions
from kohort.groups.consumer.data import ConsumerData
from kohort.groups.consumer.member import LEFT_FOR_RESTART, Member, MemberState
from kohort.groups.consumer.write import ASSIGN_TIMER
from kohort.groups.consumer_protocol import encode_share
from kohort.groups.description import PARTITIONS_LISTED, DescribedMember, WaitingFor
from kohort.groups.effects import TimerKey

EPOCH: Final = "epoch"
ASSIGNMENT_EPOCH: Final = "assignment_epoch"
UNRECONCILED: Final = {
    f"unreconciled.{state.name}": state.name.lower()
    for state in MemberState
    if state is not MemberState.UNKNOWN
}
"""Gauge name -> `state` label; each gauge counts members that have not reached their target."""


def gauges(data: ConsumerData) -> Mapping[str, int]:
    """Return the epochs, and the numbers of members that have not reached their target, by state;
    does not iterate over the members.
    """
    counts = dict.fromkeys(UNRECONCILED, 0)
    if data.unreconciled_count:
        for (epoch, state), count in data.at_epoch.items():
            if epoch != data.target_epoch or state is not MemberState.STABLE:
                name = f"unreconciled.{state.name}"
                counts[name] = counts.get(name, 0) + count
    return {EPOCH: data.epoch, ASSIGNMENT_EPOCH: data.target_epoch, **counts}


def describe_member(data: ConsumerData, member: Member) -> DescribedMember:
    """Return a member with its partitions, including those that it has to revoke."""
    return DescribedMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        sessions.timeout_of(data, member),
        member.rebalance_timeout_ms,
        (member.server_assignor,) if member.server_assignor is not None else (),
        b"",
        encode_share(data.topics, (*member.assigned, *member.pending)),
    )


def _first_pending(data: ConsumerData, members: Iterable[Member]) -> tuple[tuple[str, int], ...]:
    partitions = islice(chain.from_iterable([m.pending for m in members]), PARTITIONS_LISTED)
    return tuple(sorted(data.named(partitions)))


def describe_waiting(data: ConsumerData) -> WaitingFor | None:
    """Return what the rebalance waits for, the most serious first: members that keep revoked
    partitions, classic members that were asked to join again, static members that left for a
    restart, members that have sent no heartbeat since the target was computed, members that will
    get free partitions with their next heartbeat. None if no rebalance is running.
    """
    if data.epoch > data.target_epoch and data.members:
        return WaitingFor("assign", data.since_ms, data.deadlines.get(ASSIGN_TIMER), ())
    if not data.unreconciled_count:
        return None
    revoking: list[Member] = []
    joining: list[Member] = []
    restarting: list[Member] = []
    untold: list[Member] = []
    waiting: list[Member] = []
    for member in data.members.values():
        if member.is_reconciled(data.target_epoch):
            continue
        if member.state is MemberState.UNREVOKED_PARTITIONS:
            revoking.append(member)
        elif TimerKey(sessions.JOIN, member.member_id) in data.deadlines:
            joining.append(member)
        elif member.epoch == LEFT_FOR_RESTART:
            restarting.append(member)
        elif member.epoch != data.target_epoch:
            untold.append(member)
        else:
            waiting.append(member)
    if revoking:
        keys = [TimerKey(sessions.REVOCATION, member.member_id) for member in revoking]
        until = [data.deadlines[key] for key in keys if key in data.deadlines]
        since = [data.told_ms.get(member.member_id, data.since_ms) for member in revoking]
        return WaitingFor(
            "revoke",
            min(since),
            max(until, default=None),
            tuple([m.ref for m in revoking]),
            partition_count=sum([len(m.pending) for m in revoking]),
            partitions=_first_pending(data, revoking),
            blocked_count=len(waiting),
        )
    if joining:
        until = [data.deadlines[TimerKey(sessions.JOIN, m.member_id)] for m in joining]
        return WaitingFor("join", data.since_ms, max(until), tuple([m.ref for m in joining]))
    phase, members = ("tell", untold) if untold else ("give", waiting)
    if restarting:
        phase, members = "return", restarting
    ends = [data.sessions[m.member_id].deadline_ms for m in members if m.member_id in data.sessions]
    return WaitingFor(
        phase, data.since_ms, max(ends, default=None), tuple([m.ref for m in members])
    )
