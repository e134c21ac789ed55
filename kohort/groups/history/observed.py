"""Identity of records that watchers of a cluster made.

Two watchers, or one that was started again, make the same records. Their numbers may differ if one
saw more of the past, but not where in __consumer_offsets they were known.
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

from kohort.groups.history.names import AVOIDED, RebalanceOutcome

ObservedKey: TypeAlias = tuple[object, ...]


def observed_key(record: Mapping[str, Any]) -> ObservedKey | None:
    """Return the identity of a watched rebalance, the same in the records of all watchers; None if
    a broker made the record.
    """
    observed = record.get("observed")
    if not isinstance(observed, Mapping):
        return None
    # One stored generation may complete several records: superseded rebalances differ by the
    # generation before them, avoided ones by their member.
    apart: tuple[object, ...]
    if record.get("kind") == AVOIDED:
        apart = (AVOIDED, (record.get("trigger") or {}).get("member_id"))
    else:
        apart = (
            record.get("outcome") == RebalanceOutcome.SUPERSEDED.value,
            record.get("previous_generation"),
        )
    place = observed.get("partition"), observed.get("offset")
    return record.get("group"), *place, *apart
