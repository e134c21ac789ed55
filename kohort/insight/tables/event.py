"""The schema of rebalance history records: docs/rebalance-history.md, schema 1.

Fields added by newer brokers are ignored; fields that older brokers did not write are null.
"""

from typing import Final

from kohort.insight.tables.columns import FLAG, TEXT, TEXTS, WHOLE, WHOLES, ListOf, struct

EVIDENCE: Final = ListOf(struct(kind=TEXT, ms=WHOLE))

CAUSE: Final = struct(
    kind=TEXT,
    at_ms=WHOLE,
    after_ms=WHOLE,
    member_id=TEXT,
    instance_id=TEXT,
    client_id=TEXT,
    host=TEXT,
    was_leader=FLAG,
    reason=TEXT,
    reason_source=TEXT,
    reason_number=WHOLE,
    reason_text=TEXT,
    row=WHOLE,
    old_protocols=TEXTS,
    new_protocols=TEXTS,
    removed=TEXTS,
    removed_count=WHOLE,
    session_timeout_ms=WHOLE,
    rebalance_timeout_ms=WHOLE,
    error=TEXT,
    detail=TEXT,
    silent_ms=WHOLE,
    unfetched_ms=WHOLE,
    still_connected=FLAG,
    grown_topics=TEXTS,
    grown_ms=WHOLE,
    same_process=FLAG,
    same_subscription=FLAG,
    subscribed=TEXTS,
    unsubscribed=TEXTS,
    away_ms=WHOLE,
    certainty=TEXT,
    candidates=TEXTS,
    evidence=EVIDENCE,
)

TIMELINE: Final = struct(
    extensions_ms=WHOLES,
    stalled_ms=WHOLES,
    join_phase_ms=WHOLE,
    join_phase_end=TEXT,
    leader_synced_ms=WHOLE,
    assigned_ms=WHOLE,
    assigned_by=TEXT,
    durable_ms=WHOLE,
    finished_ms=WHOLE,
)

WAITED_FOR: Final = struct(
    phase=TEXT, member_ids=TEXTS, pending_ids=TEXTS, ms=WHOLE, were_told=FLAG
)

PARTITIONS: Final = struct(known=FLAG, kept=WHOLE, moved=WHOLE, gained=WHOLE, given_up=WHOLE)

STOPPED: Final = struct(member_count=WHOLE, longest_ms=WHOLE, total_ms=WHOLE, open_count=WHOLE)

UNREAD: Final = struct(partition_count=WHOLE, member_count=WHOLE, longest_ms=WHOLE)

MEMBER_PARTITIONS: Final = struct(
    known=FLAG,
    kept=WHOLE,
    given_up=TEXTS,
    given_up_count=WHOLE,
    gained=TEXTS,
    gained_count=WHOLE,
)

MEMBER: Final = struct(
    member_id=TEXT,
    instance_id=TEXT,
    client_id=TEXT,
    host=TEXT,
    client_software_name=TEXT,
    client_software_version=TEXT,
    type=TEXT,
    role=TEXT,
    told_ms=WHOLE,
    join_received_ms=WHOLE,
    join_answered_ms=WHOLE,
    sync_received_ms=WHOLE,
    sync_answered_ms=WHOLE,
    epoch_before=WHOLE,
    epoch=WHOLE,
    revoked_ms=WHOLE,
    reached_ms=WHOLE,
    completed_ms=WHOLE,
    fate=TEXT,
    fate_ms=WHOLE,
    replaced_by=TEXT,
    reason=TEXT,
    reason_source=TEXT,
    reason_number=WHOLE,
    reason_text=TEXT,
    mode=TEXT,
    stopped_ms=WHOLE,
    stopped_open=FLAG,
    session_timeout_ms=WHOLE,
    rebalance_timeout_ms=WHOLE,
    partitions=MEMBER_PARTITIONS,
    # Of watched groups only.
    certainty=TEXT,
    candidates=TEXTS,
    evidence=EVIDENCE,
)

OBSERVED: Final = struct(by=TEXTS, partition=WHOLE, offset=WHOLE)
"""From what `kohort watch` concluded it, and where in __consumer_offsets it was known."""

EVENT: Final = struct(
    schema=WHOLE,
    kind=TEXT,
    group=TEXT,
    sequence=WHOLE,
    # Fields of an avoided rebalance only.
    at_ms=WHOLE,
    # Fields of a rebalance only, except `generation` and `trigger`, which both have.
    previous_generation=WHOLE,
    generation=WHOLE,
    previous_state=TEXT,
    initial=FLAG,
    follows=WHOLE,
    superseded_by=WHOLE,
    group_type=TEXT,
    protocol_type=TEXT,
    started_at_ms=WHOLE,
    trigger=CAUSE,
    further_causes=ListOf(CAUSE),
    further_causes_dropped=WHOLE,
    timeline=TIMELINE,
    waited_for=WAITED_FOR,
    outcome=TEXT,
    error=TEXT,
    protocol=TEXT,
    leader=TEXT,
    leader_changed=FLAG,
    leader_change=TEXT,
    members_before=WHOLE,
    members_after=WHOLE,
    partitions=PARTITIONS,
    stopped=STOPPED,
    unread=UNREAD,
    restart_ms=WHOLE,
    pending_transactions=WHOLE,
    fenced_commits=WHOLE,
    members=ListOf(MEMBER),
    members_dropped=WHOLE,
    recovered=FLAG,
    # Of watched groups only.
    cluster=TEXT,
    observed=OBSERVED,
    started_between_ms=WHOLES,
    coordinator_changed_ms=WHOLE,
)
"""Both kinds of records share one schema, because they share a topic."""
