"""GET /api/checks: all groups with findings."""

from collections import Counter
from typing import Any, Final, TypeAlias

from kohort.broker.console.checks import findings
from kohort.broker.console.facts import facts_of
from kohort.broker.console.lag import positions
from kohort.broker.console.recent import Recents
from kohort.broker.console.source import GroupsSource
from kohort.broker.console.survey import GROUPS_MAX
from kohort.broker.http.json_parts import SLICE_MS
from kohort.broker.runtime.slices import Slice

Json: TypeAlias = dict[str, Any]

LISTED_MAX: Final = 200
"""Maximum number of groups in a response, those with warnings first."""


class Checker:
    def __init__(self, source: GroupsSource, recents: Recents) -> None:
        self._source = source
        self._recents = recents

    async def wait_checks(self) -> Json:
        """Return the current findings; runs in slices."""
        source = self._source
        time_slice = Slice(source.clock, SLICE_MS)
        warned: list[Json] = []
        noted: list[Json] = []
        counts: Counter[str] = Counter()
        checked = 0
        ids = source.groups.group_ids()
        for group_id in ids[:GROUPS_MAX]:
            group = source.groups.living_group(group_id)
            if group is None:
                continue
            checked += 1
            now = source.groups.now()
            behind = []
            for position in positions(group, source.readable):
                if position.lag:
                    behind.append(position)
                await time_slice.pause()
            recent = self._recents.recent(source.history, group_id, now.wall_ms)
            of_group = findings(facts_of(group, behind, recent, now))
            if of_group:
                counts.update({finding.check for finding in of_group})
                item = {
                    "group": group_id,
                    "findings": [finding.as_json() for finding in of_group],
                }
                listed = warned if of_group[0].is_warning else noted
                if len(listed) < LISTED_MAX:
                    listed.append(item)
            await time_slice.pause()
        return {
            "at_ms": source.groups.now().wall_ms,
            "total": len(ids),
            "looked_at": checked,
            "counts": dict(counts),
            "groups": [*warned, *noted][:LISTED_MAX],
        }
