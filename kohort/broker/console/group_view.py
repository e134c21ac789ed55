"""GET /api/groups/{group}: members, positions, awaited members, and the newest rebalance."""

from typing import Any, Final, TypeAlias

from kohort.broker.console.checks import findings
from kohort.broker.console.facts import facts_of
from kohort.broker.console.lag import AgesSeen, Position, positions, total_lag
from kohort.broker.console.recent import Recents
from kohort.broker.console.records import RecordFormatter
from kohort.broker.console.source import GroupsSource
from kohort.broker.groups_seen import GroupSeen
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.runtime.slices import Slice
from kohort.groups.history.shares import parse_share
from kohort.groups.history.waiting_text import waited_for
from kohort.groups.views import group_json, member_json, waiting_json

Json: TypeAlias = dict[str, Any]

MEMBERS_MAX: Final = 500
PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions returned; of more, those with the largest lag."""


class GroupView:
    def __init__(
        self, source: GroupsSource, ages: AgesSeen, recents: Recents, formatter: RecordFormatter
    ) -> None:
        self._source = source
        self._ages = ages
        self._recents = recents
        self._formatter = formatter

    async def wait_group(self, group: GroupSeen) -> Json:
        """Return the data. Positions and members are read at slightly different times."""
        source = self._source
        time_slice = Slice(source.clock, SLICE_MS)
        every_position: list[Position] = []
        for position in positions(group, source.readable):
            every_position.append(position)
            await time_slice.pause()
        lag = total_lag(every_position)
        if len(every_position) > PARTITIONS_MAX:
            every_position.sort(key=lambda position: -(position.lag or 0))
        shown = sorted(
            every_position[:PARTITIONS_MAX], key=lambda each: (each.topic, each.partition)
        )
        ages = await self._ages.wait_ages(shown, time_slice)
        now = source.groups.now()
        described = group.describe()
        data = group_json(described, source.history.totals(group.group_id))
        data["waiting"] = waiting = waiting_json(group.describe_waiting(), now, with_members=True)
        data["at_ms"] = now.wall_ms
        data["protocol"] = described.assignor
        data["leader"] = described.leader_id
        data["since_ms"] = described.since_ms
        if waiting is not None:
            waiting["text"] = waited_for(waiting)
        owners = await self._add_members(data, group, time_slice)
        data["lag"] = lag
        data["lag_ms"] = max((age for age in ages if age is not None), default=None)
        data["partition_count"] = len(every_position)
        data["partitions"] = listed = []
        for position, age in zip(shown, ages, strict=True):
            owner = owners.get((position.topic, position.partition))
            listed.append(_partition(position, age, owner))
            await time_slice.pause()
        recent = self._recents.recent(source.history, group.group_id, now.wall_ms)
        data["last_hour"] = recent.bins(now.wall_ms)
        data["last"] = await self._formatter.wait_newest(group.group_id, time_slice)
        facts = facts_of(group, every_position, recent, now)
        data["findings"] = [finding.as_json() for finding in findings(facts)]
        return data

    async def _add_members(
        self, data: Json, group: GroupSeen, time_slice: Slice
    ) -> dict[tuple[str, int], str]:
        """Add the members to `data`. Return the owner of each partition, by topic and partition."""
        described = group.describe()
        owners: dict[tuple[str, int], str] = {}
        data["member_count"] = described.member_count
        data["members"] = listed = []
        for member in group.describe_members(MEMBERS_MAX):
            item = member_json(described, member)
            item["partition_count"] = None
            if item["assignment"] is not None:
                share = parse_share(member.assignment) or ()
                item["partition_count"] = len(share)
                owners |= dict.fromkeys(share, member.member_id)
            listed.append(item)
            await time_slice.pause()
        return owners


def _partition(position: Position, lag_ms: int | None, member_id: str | None) -> Json:
    return {
        "topic": position.topic,
        "partition": position.partition,
        "member_id": member_id,
        "committed": position.committed.offset,
        "committed_at_ms": position.committed.commit_timestamp_ms,
        "end": position.end,
        "lag": position.lag,
        "lag_ms": lag_ms,
    }
