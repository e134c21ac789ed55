"""Combines the newest rebalances of a group into acts: an act is a restart, a deployment or another
operation on the group's processes, with all rebalances that it caused. ``kohort groups why`` and
the report show the same acts.
"""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from kohort.broker.history.rings import StoredRecord
from kohort.broker.http.rebalance_json import without_members
from kohort.broker.runtime.slices import Slice, run
from kohort.insight.analysis.group_acts import RECORDS, act_rows_steps, sums_up

MEMBERS_BYTES: Final = 2 << 20
"""Maximum total size of the newest records, which are parsed with their members in some twenty
milliseconds. Older records are parsed without members, so processes are distinguished less
reliably."""


async def wait_acts(
    group_id: str, kept: Sequence[StoredRecord], time_slice: Slice, *, at_least: int = RECORDS
) -> list[dict[str, Any]]:
    """Return the acts (restarts, ...) in the newest max(`at_least`, `RECORDS`) records, oldest act
    first; none if a record cannot be parsed, because another version or program wrote it.
    """
    newest = kept[-max(at_least, RECORDS) :]
    try:
        return await run(act_rows_steps(group_id, _newest_first(newest)), time_slice)
    except ValueError:
        return []


async def wait_last_act(
    group_id: str, kept: Sequence[StoredRecord], time_slice: Slice
) -> dict[str, Any] | None:
    """Return the latest act (a restart, a crash, a deploy) in these records; None if there is none,
    or if it is a single rebalance, whose own sentence says the same.
    """
    acts = await wait_acts(group_id, kept, time_slice)
    last = max(acts, key=lambda act: int(act["last_sequence"]), default=None)
    return last if last is not None and sums_up(last) else None


def _newest_first(kept: Sequence[StoredRecord]) -> Iterator[dict[str, Any]]:
    left = MEMBERS_BYTES
    for record in reversed(kept):
        text = record.text
        left -= len(text)
        yield json.loads(text if left >= 0 else without_members(text))
