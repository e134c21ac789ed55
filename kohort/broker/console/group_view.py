"""GET /api/groups/{group}: members, positions, awaited members, and the newest rebalance."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

from kohort.broker.console.checks import findings
from kohort.broker.console.facts import facts_of
from kohort.broker.console.lag import Ages, Position, positions, total_lag
from kohort.broker.console.recent import Recents
from kohort.broker.console.records import RecordFormatter
from kohort.broker.console.source import ConsoleSource
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.runtime.slices import Slice
from kohort.groups.group import Group
from kohort.groups.history.shares import parse_share
from kohort.groups.history.waiting_text import waited_for
from kohort.groups.views import group_json, member_json, waiting_json

Json: TypeAlias = dict[str, Any]

MEMBERS_MAX: Final = 500
PARTITIONS_MAX: Final = 1_000
"""Maximum partitions of a group; if there are more, those with the largest lag."""


class GroupView:
    """Makes the data of the page of a group."""

    def __init__(
        self, source: ConsoleSource, ages: Ages, recents: Recents, formatter: RecordFormatter
    ) -> None:
        self._source = source
        self._ages = ages
        self._recents = recents
        self._formatter = formatter

    async def wait_group(self, group: Group) -> Json:
        """Return all data; positions and members are read at slightly different moments."""
        source = self._source
        time_slice = Slice(source.clock, SLICE_MS)
        found: list[Position] = []
        for one in positions(group, source.topics):
            found.append(one)
            await time_slice.pause()
        lag = total_lag(found)
        if len(found) > PARTITIONS_MAX:
            found.sort(key=lambda one: -(one.lag or 0))
        shown = sorted(found[:PARTITIONS_MAX], key=lambda one: (one.topic, one.partition))
        ages = await self._ages.wait_ages(shown, time_slice)
        now = source.groups.host.now()
        described = group.describe()
        told = group_json(described, source.history.totals(group.group_id))
        told["waiting"] = waiting = waiting_json(group.describe_waiting(), now, with_members=True)
        told["at_ms"] = now.wall_ms
        told["protocol"] = described.assignor
        told["leader"] = described.leader_id
        told["since_ms"] = described.since_ms
        if waiting is not None:
            waiting["text"] = waited_for(waiting)
        owners = await self._add_members(told, group, time_slice)
        told["lag"] = lag
        told["lag_ms"] = max((age for age in ages if age is not None), default=None)
        told["partition_count"] = len(found)
        told["partitions"] = listed = []
        for one, age in zip(shown, ages, strict=True):
            listed.append(_partition(one, age, owners.get((one.topic, one.partition))))
            await time_slice.pause()
        recent = self._recents.recent(source.history, group.group_id, now.wall_ms)
        told["last_hour"] = recent.bins(now.wall_ms)
        told["last"] = await self._formatter.wait_newest(group.group_id, time_slice)
        facts = facts_of(group, found, recent, now)
        told["findings"] = [one.as_json() for one in findings(facts)]
        return told

    async def _add_members(
        self, told: Json, group: Group, time_slice: Slice
    ) -> dict[tuple[str, int], str]:
        """Add members, with the partitions of each."""
        described = group.describe()
        owners: dict[tuple[str, int], str] = {}
        told["member_count"] = described.member_count
        told["members"] = listed = []
        for member in group.describe_members(MEMBERS_MAX):
            one = member_json(described, member)
            one["partition_count"] = None
            if one["assignment"] is not None:
                share = parse_share(member.assignment) or ()
                one["partition_count"] = len(share)
                owners |= dict.fromkeys(share, member.member_id)
            listed.append(one)
            await time_slice.pause()
        return owners


def _partition(one: Position, lag_ms: int | None, member_id: str | None) -> Json:
    return {
        "topic": one.topic,
        "partition": one.partition,
        "member_id": member_id,
        "committed": one.committed.offset,
        "committed_at_ms": one.committed.commit_timestamp_ms,
        "end": one.end,
        "lag": one.lag,
        "lag_ms": lag_ms,
    }
