"""GET /api/groups: a page of groups, filtered and sorted over all of them; and GET
/api/groups/{group}: members, positions, awaited members, and the newest rebalance.
"""

from heapq import nlargest
from typing import Any, Final, TypeAlias

from kohort.broker.console.checks import all_findings
from kohort.broker.console.lag import AgesSeen, total_lag
from kohort.broker.console.problems import problems
from kohort.broker.console.recent import Recents
from kohort.broker.console.records import RecordFormatter
from kohort.broker.console.source import GroupsSource
from kohort.broker.console.survey import ORDERS, Row, Survey, wait_chosen
from kohort.broker.console.timed_cache import TimedCache
from kohort.broker.groups_seen import GroupSeen, Position, positions
from kohort.broker.http.acts_json import wait_last_act
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import Query
from kohort.broker.runtime.slices import Slice
from kohort.groups.history.shares import parse_share
from kohort.groups.history.waiting_text import waited_for
from kohort.groups.kinds import GroupKind
from kohort.groups.views import group_json, member_json, waiting_json

Json: TypeAlias = dict[str, Any]

MEMBERS_MAX: Final = 500
PARTITIONS_MAX: Final = 1_000
"""Maximum number of partitions returned. If a group has more, those with the largest lag are
returned."""


class GroupView:
    def __init__(
        self, source: GroupsSource, ages: AgesSeen, recents: Recents, formatter: RecordFormatter
    ) -> None:
        self._source = source
        self._ages = ages
        self._recents = recents
        self._formatter = formatter

    async def wait_group(self, group: GroupSeen) -> Json:
        """Return a group's data. Positions and members are read at slightly different times."""
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
        data["type"] = described.kind.value
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
        stored = source.history.stored_records(group.group_id)
        data["act"] = await wait_last_act(group.group_id, stored, time_slice)
        found = all_findings(group, source, every_position, recent, now)
        data["findings"] = [finding.as_json() for finding in found]
        data["lag_last_hour"] = source.lags.last_hour(group.group_id)
        data["share"] = share = await self._wait_share(group, time_slice)
        if share is not None:
            data["lag"] = sum(each["lag"] for each in share["share_partitions"])
            data["findings"] = share["warnings"] + data["findings"]
        return data

    async def _wait_share(self, group: GroupSeen, time_slice: Slice) -> Json | None:
        """Return the share-partitions of a share group; None for another group."""
        delivery = self._source.shares()
        if group.describe().kind is not GroupKind.SHARE or delivery is None:
            return None
        from kohort.broker.http.share_json import ShareGroupView  # noqa: PLC0415 - few brokers have any.

        return await ShareGroupView(delivery, group, self._source.groups.now).wait_json(time_slice)

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


PAGE_SIZE: Final = 100
PAGES_MAX: Final = 1_000

AGED_EACH: Final = 8
"""Maximum partitions per group whose lag in time is read for a list: the ones with the largest lag
in records. The group's own page reads the lag in time of all partitions."""


class GroupsView:
    def __init__(
        self, source: GroupsSource, survey: TimedCache[Survey], ages: AgesSeen, recents: Recents
    ) -> None:
        self._source = source
        self._survey = survey
        self._ages = ages
        self._recents = recents

    async def wait_page(self, query: Query) -> Json:
        """Return one page of the list of groups.

        Raises:
            BadRequestError: the query is invalid.
        """
        wanted = (query.text("filter") or "").lower()
        state = query.text("state")
        sort = query.text("sort") or "problem"
        order = sort.removeprefix("-")
        if order not in ORDERS:
            raise BadRequestError(
                f"sort must be one of {', '.join(ORDERS)}; a leading - means descending"
            )
        page = query.number("page", 1, at_most=PAGES_MAX)
        survey = await self._survey.wait()
        time_slice = Slice(self._source.clock, SLICE_MS)

        def is_chosen(row: Row) -> bool:
            if state == "waiting" and not row.group.is_rebalancing:
                return False
            if state not in {None, "", "waiting", row.group.state}:
                return False
            return wanted in row.group.group_id.lower()

        span = slice((page - 1) * PAGE_SIZE, page * PAGE_SIZE)
        shown, match_count = await wait_chosen(
            survey.rows,
            is_chosen,
            order,
            down=sort.startswith("-"),
            span=span,
            time_slice=time_slice,
        )
        items = []
        for row in shown:
            lag_ms, is_least = await self._wait_age(row, time_slice)
            items.append(self._item(row, lag_ms, is_least=is_least))
            await time_slice.pause()
        return {
            "at_ms": self._source.groups.now().wall_ms,
            "total": survey.total,
            "looked_at": len(survey.rows),
            "found": match_count,
            "page": page,
            "pages": max(1, -(-match_count // PAGE_SIZE)),
            "states": dict(survey.states),
            "groups": items,
        }

    async def _wait_age(self, row: Row, time_slice: Slice) -> tuple[int | None, bool]:
        """Return the age of a group's oldest unread record, and whether the age is only a lower
        bound.
        """
        group = self._source.groups.group(row.group.group_id) if row.lag else None
        behind: list[Position] = []
        if group is not None:
            for position in positions(group, self._source.readable):
                if position.lag:
                    behind.append(position)
                await time_slice.pause()
        most = nlargest(AGED_EACH, behind, key=lambda position: position.lag or 0)
        ages = await self._ages.wait_ages(most, time_slice)
        known = [age for age in ages if age is not None]
        return max(known, default=0 if row.lag == 0 else None), len(behind) > AGED_EACH

    def _item(self, row: Row, lag_ms: int | None, *, is_least: bool) -> Json:
        source = self._source
        now = source.groups.now()
        group_id = row.group.group_id
        group = source.groups.group(group_id)
        # The survey is cached for seconds: the group may have changed or been removed since.
        described = row.group if group is None else group.describe()
        waiting = waiting_json(
            None if group is None else group.describe_waiting(), now, with_members=True
        )
        if waiting is not None:
            waiting["text"] = waited_for(waiting)
        recent = self._recents.recent(source.history, group_id, now.wall_ms)
        found = () if group is None else problems(group, source, now)
        return {
            "group": group_id,
            "state": described.state,
            "members": described.member_count,
            "protocol_type": described.protocol_type,
            "assignor": described.assignor,
            "generation": described.generation,
            "lag": row.lag,
            "lag_ms": lag_ms,
            "lag_ms_is_least": is_least,
            "last_hour": recent.bins(now.wall_ms),
            "last": recent.last,
            "waiting": waiting,
            "problems": [finding.as_json() for finding in found],
        }
