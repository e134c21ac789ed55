"""GET /api/groups: a page of groups, filtered and sorted over all of them."""

from collections.abc import Sequence
from heapq import nlargest
from typing import Any, Final, TypeAlias

from kohort.broker.console.lag import AgesSeen, Position, positions
from kohort.broker.console.recent import Recents
from kohort.broker.console.source import GroupsSource
from kohort.broker.console.survey import ORDERS, Row, Survey, wait_chosen
from kohort.broker.console.timed_cache import TimedCache
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.http.messages import BadRequestError
from kohort.broker.http.routes import Query
from kohort.broker.runtime.slices import Slice
from kohort.groups.history.waiting_text import waited_for
from kohort.groups.views import waiting_json

Json: TypeAlias = dict[str, Any]

PAGE_SIZE: Final = 100
PAGES_MAX: Final = 1_000

AGED_EACH: Final = 8
"""Maximum partitions per group whose lag in time is read for a list: those with the largest lag.
The group's own page reads all."""


class GroupsView:
    def __init__(
        self, source: GroupsSource, survey: TimedCache[Survey], ages: AgesSeen, recents: Recents
    ) -> None:
        self._source = source
        self._survey = survey
        self._ages = ages
        self._recents = recents

    async def wait_page(self, query: Query) -> Json:
        """Return one page of the list.

        Raises:
            BadRequestError: the query is invalid.
        """
        wanted = (query.text("filter") or "").lower()
        state = query.text("state")
        sort = query.text("sort") or "group"
        order = sort.removeprefix("-")
        if order not in ORDERS:
            raise BadRequestError(
                f"sort must be one of {', '.join(ORDERS)}; a leading - means descending"
            )
        page = query.number("page", 1, at_most=PAGES_MAX)
        survey = await self._survey.wait()
        time_slice = Slice(self._source.clock, SLICE_MS)

        def is_chosen(row: Row) -> bool:
            if state == "waiting" and not row.is_waiting:
                return False
            if state not in {None, "", "waiting", row.state}:
                return False
            return wanted in row.group_id.lower()

        span = slice((page - 1) * PAGE_SIZE, page * PAGE_SIZE)
        shown, match_count = await wait_chosen(
            survey.rows,
            is_chosen,
            order,
            down=sort.startswith("-"),
            span=span,
            time_slice=time_slice,
        )
        ages = await self._wait_ages(shown, time_slice)
        items = []
        for row, (lag_ms, is_least) in zip(shown, ages, strict=True):
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

    async def _wait_ages(
        self, rows: Sequence[Row], time_slice: Slice
    ) -> list[tuple[int | None, bool]]:
        """Return the age of each group's oldest unread record, and whether it is a lower bound."""
        asked: list[Position] = []
        ends: list[tuple[int, bool]] = []
        for row in rows:
            group = self._source.groups.group(row.group_id) if row.lag else None
            behind: list[Position] = []
            count = 0
            if group is not None:
                for position in positions(group, self._source.readable):
                    if position.lag:
                        count += 1
                        behind.append(position)
                        if len(behind) > 2 * AGED_EACH:
                            behind = _most(behind)
                    await time_slice.pause()
            asked += _most(behind)
            ends.append((len(asked), count > AGED_EACH))
        ages = await self._ages.wait_ages(asked, time_slice)
        oldest: list[tuple[int | None, bool]] = []
        start = 0
        for row, (end, is_least) in zip(rows, ends, strict=True):
            known = [age for age in ages[start:end] if age is not None]
            start = end
            oldest.append((max(known, default=0 if row.lag == 0 else None), is_least))
        return oldest

    def _item(self, row: Row, lag_ms: int | None, *, is_least: bool) -> Json:
        source = self._source
        now = source.groups.now()
        group = source.groups.group(row.group_id)
        described = None if group is None else group.describe()
        waiting = waiting_json(
            None if group is None else group.describe_waiting(), now, with_members=True
        )
        if waiting is not None:
            waiting["text"] = waited_for(waiting)
        recent = self._recents.recent(source.history, row.group_id, now.wall_ms)
        return {
            "group": row.group_id,
            # The survey may be slightly out of date.
            "state": row.state if described is None else described.state,
            "members": row.member_count if described is None else described.member_count,
            "protocol_type": row.protocol_type,
            "assignor": row.assignor,
            "generation": row.generation if described is None else described.generation,
            "lag": row.lag,
            "lag_ms": lag_ms,
            "lag_ms_is_least": is_least,
            "last_hour": recent.bins(now.wall_ms),
            "last": recent.last,
            "waiting": waiting,
        }


def _most(behind: list[Position]) -> list[Position]:
    return nlargest(AGED_EACH, behind, key=lambda position: position.lag or 0)
