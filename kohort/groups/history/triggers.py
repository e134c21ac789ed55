"""Converts causes of rebalances to the form that history records have."""

from typing import Any, Final

from kohort.groups.events import Certainty, TriggerKind
from kohort.groups.history.facts import LINGERS_MS, Cause
from kohort.groups.history.model import TriggerRecord
from kohort.groups.history.names import PROTOCOLS_LISTED, cut_id, cut_ids, cut_text
from kohort.groups.reasons import ReasonSource, StatedReason

_SOURCES: Final = {ReasonSource.TAG: "tag", ReasonSource.INFERRED: "text", ReasonSource.NONE: None}

_LEAVING: Final = frozenset({TriggerKind.MEMBER_LEFT, TriggerKind.REMOVED_BY_ADMIN})

_OVERDUE: Final = frozenset(
    {TriggerKind.SYNC_EXPIRED, TriggerKind.JOIN_EXPIRED, TriggerKind.REBALANCE_EXPIRED}
)


def trigger_record(
    cause: Cause, began_ms: int | None = None, *, now_ms: int | None = None
) -> TriggerRecord:
    """Return the record of a cause.

    Args:
        began_ms: start of the rebalance (monotonic), for every cause but the first.
        now_ms: the present time (monotonic), to tell whether a member that left still has its
            connection.
    """
    trigger = cause.trigger
    member = trigger.member
    timeout_ms = trigger.timeout_ms
    still_connected = trigger.was_connected
    if trigger.connection is not None and now_ms is not None:
        is_late = now_ms - cause.at.ms >= LINGERS_MS
        still_connected = trigger.connection.is_open if is_late else None
    is_leaving = trigger.kind in _LEAVING and trigger.certainty is Certainty.CERTAIN
    stated = stated_fields(trigger.reason)
    if is_leaving:  # Then the detail is the reason text of the LeaveGroup.
        stated["reason_text"] = cut_text(trigger.detail)
    return TriggerRecord(
        kind=trigger.kind,
        at_ms=cause.at.wall_ms,
        after_ms=None if began_ms is None else cause.at.ms - began_ms,
        member_id=None if member is None else cut_id(member.member_id),
        instance_id=None if member is None else cut_or_none(member.instance_id),
        client_id=None if member is None else cut_id(member.client_id),
        host=None if member is None else cut_id(member.client_host),
        was_leader=trigger.was_leader,
        row=trigger.row,
        old_protocols=cut_ids(trigger.old_protocols, PROTOCOLS_LISTED),
        new_protocols=cut_ids(trigger.new_protocols, PROTOCOLS_LISTED),
        removed=cut_ids(trigger.removed),
        removed_count=len(trigger.removed),
        session_timeout_ms=timeout_ms if trigger.kind is TriggerKind.SESSION_EXPIRED else None,
        rebalance_timeout_ms=timeout_ms if trigger.kind in _OVERDUE else None,
        error=trigger.error.name if trigger.error else None,
        detail=None if is_leaving else cut_text(trigger.detail),
        silent_ms=trigger.silent_ms,
        unfetched_ms=trigger.unfetched_ms,
        still_connected=still_connected,
        grown_topics=cut_ids(trigger.grown_topics),
        grown_ms=trigger.grown_ms,
        same_process=trigger.same_process,
        same_subscription=trigger.same_subscription,
        subscribed=cut_ids(trigger.subscribed),
        unsubscribed=cut_ids(trigger.unsubscribed),
        away_ms=trigger.away_ms,
        certainty=trigger.certainty,
        candidates=trigger.candidates,
        evidence=trigger.evidence,
        **stated,
    )


def stated_fields(stated: StatedReason) -> dict[str, Any]:
    """Return a client's stated reason as the four `reason` fields of a record."""
    return {
        "reason": stated.reason.name if stated.reason else None,
        "reason_source": _SOURCES[stated.source],
        "reason_number": stated.raw or None,
        "reason_text": cut_text(stated.text),
    }


def cut_or_none(text: str | None) -> str | None:
    """Like `cut_id`, but return None for None."""
    return None if text is None else cut_id(text)
