"""The cause of a rebalance, stored with its generation for recovery after a crash.

The history of a rebalance is written when all members have their assignment, some time after the
group has stored it. If the broker is killed in between, the history is reconstructed from a
`StoredCause` in a header of the generation's record.
"""

import json
from typing import Any, Final, NamedTuple

from kohort.groups.events import MemberRef, Trigger, TriggerKind
from kohort.groups.reasons import ReasonSource, StatedReason
from kohort.protocol.join_reason import JoinReason

CHARS: Final = 1_000
"""Maximum length of each string in a `StoredCause`: each generation stores one, and a client id may
have thirty thousand characters."""


class StoredCause(NamedTuple):
    """The cause of a rebalance, and the state of the group in which it began."""

    previous_state: str
    previous_generation: int
    started_at_ms: int
    kind: str
    member: tuple[str, str | None, str, str] | None
    """Member id, instance id, client id and host of the member that caused the rebalance."""
    was_leader: bool
    reason: str | None
    reason_source: str
    reason_number: int
    reason_text: str | None


def encode_cause(trigger: Trigger, state: str, generation: int, wall_ms: int) -> bytes:
    """Encode the cause of a rebalance, with the group's state and generation before it."""
    stated, member = trigger.reason, trigger.member
    begun = StoredCause(
        previous_state=state,
        previous_generation=generation,
        started_at_ms=wall_ms,
        kind=trigger.kind.value,
        member=None
        if member is None
        else (
            member.member_id[:CHARS],
            member.instance_id and member.instance_id[:CHARS],
            member.client_id[:CHARS],
            member.client_host[:CHARS],
        ),
        was_leader=trigger.was_leader,
        reason=stated.reason.name if stated.reason else None,
        reason_source=stated.source.value,
        reason_number=stated.raw,
        reason_text=stated.text,
    )
    return json.dumps(begun, separators=(",", ":")).encode()


def decode_cause(data: bytes) -> StoredCause:
    """Decode the cause of a rebalance. Raises ValueError."""
    try:
        values: Any = json.loads(data)
        begun = StoredCause(*values)
        TriggerKind(begun.kind)
        member = begun.member
        if member is not None:
            member_id, instance_id, client_id, host = member
            begun = begun._replace(member=(member_id, instance_id, client_id, host))
    except TypeError as error:
        raise ValueError(f"not the beginning of a rebalance: {error}") from error
    return begun


def trigger_of(begun: StoredCause) -> Trigger:
    return Trigger(
        TriggerKind(begun.kind),
        None if begun.member is None else MemberRef(*begun.member),
        was_leader=begun.was_leader,
        reason=StatedReason(
            JoinReason.UNKNOWN if begun.reason is None else JoinReason[begun.reason],
            ReasonSource(begun.reason_source),
            begun.reason_number,
            begun.reason_text,
        ),
    )
