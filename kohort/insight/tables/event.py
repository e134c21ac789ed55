"""The schema of rebalance history records: docs/rebalance-history.md, schema 1.

Fields added by newer brokers are ignored; fields that older brokers did not write are null.
"""

from typing import Final

from kohort.insight.tables.columns import (
    FLAG,
    TEXT,
    TEXTS,
    WHOLE,
    WHOLES,
    ListOf,
    Struct,
    Type,
    struct,
)


def _struct(whole: str = "", text: str = "", flag: str = "", **others: Type) -> Struct:
    """Return a struct with fields of these names and types."""
    kinds = {WHOLE: whole, TEXT: text, FLAG: flag}
    simple = {name: kind for kind, names in kinds.items() for name in names.split()}
    return struct(**simple, **others)


EVIDENCE: Final = ListOf(_struct(text="kind", whole="ms"))

CAUSE: Final = _struct(
    text="kind member_id instance_id client_id host reason reason_source reason_text error detail"
    " certainty",
    whole="at_ms after_ms reason_number row removed_count session_timeout_ms rebalance_timeout_ms"
    " silent_ms unfetched_ms grown_ms away_ms",
    flag="was_leader still_connected same_process same_subscription",
    old_protocols=TEXTS,
    new_protocols=TEXTS,
    removed=TEXTS,
    grown_topics=TEXTS,
    subscribed=TEXTS,
    unsubscribed=TEXTS,
    candidates=TEXTS,
    evidence=EVIDENCE,
)

TIMELINE: Final = _struct(
    whole="join_phase_ms leader_synced_ms assigned_ms durable_ms finished_ms",
    text="join_phase_end assigned_by",
    extensions_ms=WHOLES,
    stalled_ms=WHOLES,
)

WAITED_FOR: Final = _struct(
    text="phase", whole="ms", flag="were_told", member_ids=TEXTS, pending_ids=TEXTS
)

PARTITIONS: Final = _struct(flag="known", whole="kept moved gained given_up")

STOPPED: Final = _struct("member_count longest_ms total_ms open_count")

UNREAD: Final = _struct("partition_count member_count longest_ms")

MEMBER_PARTITIONS: Final = _struct(
    "kept given_up_count gained_count", flag="known", given_up=TEXTS, gained=TEXTS
)

# Certainty, candidates and evidence are of watched groups only.
MEMBER: Final = _struct(
    text="member_id instance_id client_id host client_software_name client_software_version type"
    " role fate replaced_by reason reason_source reason_text mode certainty",
    whole="told_ms join_received_ms join_answered_ms sync_received_ms sync_answered_ms epoch_before"
    " epoch revoked_ms reached_ms completed_ms fate_ms reason_number stopped_ms session_timeout_ms"
    " rebalance_timeout_ms",
    flag="stopped_open",
    partitions=MEMBER_PARTITIONS,
    candidates=TEXTS,
    evidence=EVIDENCE,
)

OBSERVED: Final = _struct("partition offset", by=TEXTS)
"""From what `kohort watch` concluded it, and where in __consumer_offsets it was known."""

# `at_ms` is of avoided rebalances only; of the others, these have only `schema`, `kind`, `group`,
# `sequence`, `generation` and `trigger`. `cluster`, `observed`, `started_between_ms` and
# `coordinator_changed_ms` are of watched groups only.
EVENT: Final = _struct(
    whole="schema sequence at_ms previous_generation generation follows superseded_by started_at_ms"
    " further_causes_dropped members_before members_after restart_ms pending_transactions"
    " fenced_commits members_dropped coordinator_changed_ms",
    text="kind group previous_state group_type protocol_type outcome error protocol leader"
    " leader_change cluster",
    flag="initial leader_changed recovered",
    trigger=CAUSE,
    further_causes=ListOf(CAUSE),
    timeline=TIMELINE,
    waited_for=WAITED_FOR,
    partitions=PARTITIONS,
    stopped=STOPPED,
    unread=UNREAD,
    members=ListOf(MEMBER),
    observed=OBSERVED,
    started_between_ms=WHOLES,
)
"""Both kinds of records share one schema, because they share a topic."""
