"""Makes history records from the facts of completed rebalances."""

from typing import Any, TypeAlias

from kohort.groups.history.build import build_avoided, build_steps
from kohort.groups.history.facts import AssignedFacts, AvoidedFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import as_json, fields_of
from kohort.groups.history.moves import TakenPartitions
from kohort.groups.history.share_record import build_assigned
from kohort.groups.steps import at_once
from kohort.watch.core.fate import Fate

Json: TypeAlias = dict[str, Any]


def closed_records(
    fold: GroupFold, group_id: str, taken: TakenPartitions, until_ms: int
) -> tuple[list[Json], TakenPartitions]:
    """Remove the completed rebalances from `fold`; return their records, and the partitions that
    moved in them: the `taken` of the next call. `until_ms`: the time of the last event.
    """
    closed, fold.closed = fold.closed, []
    records = []
    for facts in closed:
        if isinstance(facts, AvoidedFacts):
            records.append(as_json(build_avoided(group_id, facts)))
        elif isinstance(facts, AssignedFacts):
            records.append(as_json(build_assigned(group_id, facts)))
        else:
            steps = build_steps(group_id, facts, until_ms=until_ms, taken=taken)
            record, taken = at_once(steps)
            records.append(as_json(record))
    return records, taken


def state_fate(member: Json, fate: Fate) -> None:
    """Add the certainty, possible reasons and evidence of a member's departure to its record."""
    member["certainty"] = fate.certainty.value
    member["candidates"] = [reason.value for reason in fate.candidates]
    member["evidence"] = [fields_of(fact) for fact in fate.evidence]
