"""Formats members and causes as text of one line, whatever characters a peer's names contain."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

from kohort.formats.text import counted, duration, listed, shown
from kohort.groups.events import UNDER_OLD_ID, Certainty, TriggerKind
from kohort.groups.reasons import has_stopped_polling, is_first_join
from kohort.groups.requests import CONSUMER
from kohort.protocol.join_reason import JoinReason

if TYPE_CHECKING:
    # Not imported at startup, when only counts are logged and there are no records yet.
    from kohort.groups.history.model import TriggerRecord

ClockText: TypeAlias = Callable[[int], str]
"""Formats a moment, given in milliseconds since 1970."""


def begins_with(member_id: str, name: str) -> bool:
    """Whether a member id begins with a name: the ids of classic members begin with the client id,
    or the instance id if they are static. Members of consumer groups (KIP-848) choose random ids,
    and keep them.
    """
    return member_id.startswith(f"{name}-")


_RANDOM: Final = re.compile(
    r"(?P<uuid>[0-9a-f]{8})-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$"
    r"|^(?P<base64>[\w+/-]{8})[\w+/-]{14}$"
)
"""Matches the random end of a member id that a broker created, or an id that a client created
(KIP-848), which is entirely random."""
_CHARS_MAX: Final = 48
_TAIL: Final = 12


def short_id(member_id: str) -> str:
    """Shorten a member id to fit in a sentence: keep eight characters of its random part."""
    text = shown(member_id)
    match = _RANDOM.search(text)
    if match is not None:
        text = text[: match.start()] + (match["uuid"] or match["base64"])
    return _cut(text)


def _cut(text: str) -> str:
    return text if len(text) <= _CHARS_MAX else f"{text[: _CHARS_MAX - _TAIL]}…{text[-_TAIL:]}"


def short_ids(member_ids: Iterable[str], count: int | None = None) -> str:
    """List the first few members, and how many more there are; `count` is the total."""
    return listed([short_id(member_id) for member_id in member_ids], count)


def short_name(member_id: str, client_id: str | None) -> str:
    """Shorten a member id; append the client id if the member id does not begin with it."""
    if not client_id or begins_with(member_id, client_id):
        return short_id(member_id)
    return f"{short_id(member_id)} (client.id {_cut(shown(client_id))})"


def member_text(
    member_id: str, instance_id: str | None, host: str | None, client_id: str | None = None
) -> str:
    """Format a member: member X (static id y, host z). The client id is included if the member is
    dynamic and its member id does not begin with the client id.
    """
    details = []
    if instance_id is not None:
        details.append(f"static id {shown(instance_id)}")
    elif client_id and not begins_with(member_id, client_id):
        details.append(f"client.id {shown(client_id)}")
    if host:
        details.append(f"host {shown(host.removeprefix('/'))}")
    ending = f" ({', '.join(details)})" if details else ""
    return f"member {short_id(member_id)}{ending}"


def causes_text(
    trigger: TriggerRecord,
    further: Sequence[TriggerRecord],
    protocol_type: str | None = CONSUMER,
    follows: int | None = None,
    *,
    was_last: bool = False,
) -> str:
    """Describe the causes of a rebalance as a clause: "3 members joined (X, Y, Z)"; further causes
    of another kind are left out.

    Args:
        was_last: whether the group had only the member of `trigger`, and has none now.
    """
    alike = _alike(trigger, further)
    if was_last and trigger.kind is TriggerKind.MEMBER_LEFT and len(alike) == 1:
        return f"{_who(trigger)} was the last to leave{_stated(trigger)}{_certainty(trigger)}"
    if len(alike) <= 1:
        return cause_text(trigger, protocol_type, follows)
    members = f"{counted(len(alike), 'member')} {_plain_verb(trigger)} ({listed(alike)})"
    if trigger.kind is TriggerKind.SESSION_EXPIRED:
        expired = (cause for cause in (trigger, *further) if cause.kind is trigger.kind)
        connected = {cause.still_connected for cause in expired}
        members += _EXPIRED_TOGETHER[connected.pop() if len(connected) == 1 else None]
    return f"{members}{_certainty(trigger)}"


_OF_SEVERAL: Final = {
    TriggerKind.MEMBER_ADDED: "joined",
    TriggerKind.STATIC_ADDED: "joined",
    TriggerKind.MEMBER_LEFT: "left",
    TriggerKind.SESSION_EXPIRED: "missed their session timeouts",
}


_EXPIRED: Final = {
    None: "",
    False: "; its connection had closed",
    True: ", but stayed connected (not polling, stuck, paused or cut off)",
}
"""What `still_connected` says of a member whose session has expired. Static members, members of
librdkafka's consumer groups and those of kafka-python send no heartbeats when they do not poll.
"""
_EXPIRED_TOGETHER: Final = {
    None: "",
    False: "; their connections had closed",
    True: ", but stayed connected (not polling, stuck, paused or cut off)",
}


def _alike(trigger: TriggerRecord, further: Sequence[TriggerRecord]) -> list[str]:
    """Return the short names of all members that, like the member of `trigger`, joined, left or
    otherwise caused the rebalance in the same way.
    """
    verb = _plain_verb(trigger)
    if verb is None or trigger.removed_count > 1:
        return []
    names: dict[str, str] = {}
    for cause in (trigger, *further):
        if cause.member_id is not None and _plain_verb(cause) == verb:
            names[cause.member_id] = (
                short_id(cause.instance_id)
                if cause.instance_id
                else short_name(cause.member_id, cause.client_id)
            )
    return list(names.values())


def _plain_verb(cause: TriggerRecord) -> str | None:
    """Return the verb for a cause that needs no further details ("joined"); None for others."""
    if cause.same_process:
        return "came back"
    return None if is_stuck(cause) else _OF_SEVERAL.get(cause.kind)


def is_stuck(cause: TriggerRecord) -> bool:
    """Whether the cause is a member that left because its application did not poll."""
    return cause.kind is TriggerKind.MEMBER_LEFT and has_stopped_polling(
        cause.reason_text, cause.unfetched_ms, still_connected=cause.still_connected
    )


def cause_text(
    trigger: TriggerRecord, protocol_type: str | None = CONSUMER, follows: int | None = None
) -> str:
    """Describe a cause as a clause: "member X (host z) left".

    Args:
        follows: sequence number of the rebalance whose revoked partitions this one assigns.
    """
    return _happened(trigger, protocol_type, follows) + _stated(trigger) + _certainty(trigger)


def _who(trigger: TriggerRecord) -> str:
    if not trigger.member_id:
        if not trigger.client_id:
            return "a member"
        client = member_text(trigger.client_id, trigger.instance_id, trigger.host)
        return f"client {client.removeprefix('member ')}"
    if trigger.removed_count > 1:
        some = short_ids(trigger.removed, trigger.removed_count)
        return f"{counted(trigger.removed_count, 'member')} ({some})"
    return member_text(trigger.member_id, trigger.instance_id, trigger.host, trigger.client_id)


_HAPPENED: Final = {
    TriggerKind.MEMBER_ADDED: "{who} joined",
    TriggerKind.STATIC_ADDED: "{who} joined",
    TriggerKind.STATIC_REPLACED: "{who} came back under a new member id",
    TriggerKind.PROTOCOLS_CHANGED: "{who} {changed}",
    TriggerKind.LEADER_REJOINED: "the leader, {who}, joined again{unchanged}",
    TriggerKind.FOLLOWER_REJOINED: "{who} joined again",
    TriggerKind.FORCED_BY_REASON: "{who} asked for it",
    TriggerKind.MEMBER_LEFT: "{who} left",
    TriggerKind.REMOVED_BY_ADMIN: "an administrator removed {who}",
    TriggerKind.SESSION_EXPIRED: "{who} missed its session timeout{session}",
    TriggerKind.NEW_MEMBER_EXPIRED: "{who} was new, and its first join took too long",
    TriggerKind.SYNC_EXPIRED: (
        "{who} did not fetch the assignment within the rebalance timeout{rebalance}"
    ),
    TriggerKind.STORE_FAILED: "the assignment could not be stored ({error})",
    TriggerKind.OVER_CAPACITY: "it was loaded with more members than group.max.size allows",
    TriggerKind.SIZE_REFUSED: "{who} was turned away from a full group",
    TriggerKind.SUBSCRIPTION_CHANGED: "{who} changed its subscription",
    TriggerKind.REGEX_RESOLVED: "a regular expression matches other topics than before",
    TriggerKind.ASSIGNOR_CHANGED: "{who} changed the group's assignor",
    TriggerKind.TOPICS_CHANGED: "topics of the group were created, deleted or got partitions",
    TriggerKind.REBALANCE_EXPIRED: (
        "{who} did not give up partitions within its rebalance timeout{rebalance}"
    ),
    TriggerKind.JOIN_EXPIRED: ("{who} did not join again within its rebalance timeout{rebalance}"),
    TriggerKind.INITIALIZED: "partitions of its topics were initialized",
    TriggerKind.UPGRADED: "{who} joined, which made it a consumer group",
    TriggerKind.DOWNGRADED: "its last consumer, {who}, is gone, which made it a classic group",
    TriggerKind.INSTANCE_FENCED: (
        "two processes use static id {static}: {who} took it from one that is still alive and"
        " gets errors now; each process needs its own group.instance.id"
    ),
    TriggerKind.PROTOCOL_REFUSED: (
        "{who} was refused ({error}): it offers {new}, while the members have {old} in common;"
        " partition.assignment.strategy needs one that all offer"
    ),
    TriggerKind.MEMBER_REFUSED: "{who} was refused ({error})",
    TriggerKind.UNKNOWN: "of a cause that left no trace",
}

_WITH_DETAIL: Final = {
    TriggerKind.SESSION_EXPIRED: "{who} {detail} within its session timeout{session}",
    TriggerKind.SUBSCRIPTION_CHANGED: "{who} changed its subscription: {detail}",
    TriggerKind.REGEX_RESOLVED: "a regular expression matches other topics than before: {detail}",
    TriggerKind.TOPICS_CHANGED: "topics of the group have changed: {detail}",
    TriggerKind.PROTOCOL_REFUSED: "{who} was refused ({error}): {detail}",
    TriggerKind.MEMBER_REFUSED: "{who} was refused ({error}): {detail}",
    TriggerKind.DOWNGRADED: "its last consumer, {who}, {detail}, which made it a classic group",
}
"""Texts that contain the cause's detail; for other causes, the detail is appended to the text."""

_REJOINED: Final = frozenset(
    {
        TriggerKind.PROTOCOLS_CHANGED,
        TriggerKind.LEADER_REJOINED,
        TriggerKind.FOLLOWER_REJOINED,
        TriggerKind.FORCED_BY_REASON,
    }
)
ENFORCED: Final = "ENFORCED"
"""The JoinReason of Consumer.enforceRebalance."""


def _happened(trigger: TriggerRecord, protocol_type: str | None, follows: int | None) -> str:
    words = _words(trigger)
    text = words.format(
        who=_who(trigger),
        changed=_changed(trigger, protocol_type, follows),
        unchanged=_unchanged(trigger),
        static=shown(trigger.instance_id or ""),
        session=_of(trigger.session_timeout_ms),
        rebalance=_of(trigger.rebalance_timeout_ms),
        error=trigger.error,
        old=listed(trigger.old_protocols),
        new=listed(trigger.new_protocols),
        detail=shown(trigger.detail or ""),
    )
    if trigger.detail and "{detail}" not in words:
        text += f", {shown(trigger.detail)}"
    if trigger.silent_ms is not None:
        text += f", {duration(trigger.silent_ms)} after it was last heard of"
    if trigger.kind is TriggerKind.SESSION_EXPIRED:
        text += _EXPIRED[trigger.still_connected]
    if is_stuck(trigger):
        text += _stuck(trigger)
    if trigger.grown_topics:
        topics = listed(trigger.grown_topics)
        is_one = len(trigger.grown_topics) == 1
        noun, were = ("topic", "was") if is_one else ("topics", "were")
        ago = duration(trigger.grown_ms or 0)
        text += f", {ago} after {noun} {topics} {were} given more partitions"
    return text


def _unchanged(trigger: TriggerRecord) -> str:
    """Say why a leader that states no reason may have joined again."""
    if not trigger.same_subscription or trigger.reason_text or trigger.grown_topics:
        return ""
    return " with the same subscription, as leaders do that see a change of topics"


def _stuck(trigger: TriggerRecord) -> str:
    """Return the evidence that a member left because its application did not poll."""
    if trigger.unfetched_ms is None and not trigger.reason_text:
        return (
            " without a reason and stayed connected, as a client does whose application no longer"
            " polls (max.poll.interval.ms)"
        )
    signs = []
    if trigger.unfetched_ms is not None:
        signs.append(f"heartbeats went on without a Fetch for {duration(trigger.unfetched_ms)}")
    if trigger.still_connected:
        signs.append("it is still connected after LeaveGroup")
    seen = f": {', '.join(signs)}" if signs else ""
    return f" because its application stopped polling (max.poll.interval.ms{seen})"


def _words(trigger: TriggerRecord) -> str:
    kind = trigger.kind
    detail = trigger.detail or ""
    if kind in _REJOINED and trigger.reason == ENFORCED:
        return "{who} enforced a rebalance"
    if kind is TriggerKind.STATIC_REPLACED and detail.startswith(UNDER_OLD_ID):
        return "{who} came back {detail}"
    if trigger.same_process:
        away = "" if trigger.away_ms is None else f" after {duration(trigger.away_ms)} of silence"
        client = trigger.instance_id or trigger.client_id or ""
        is_renamed = begins_with(trigger.member_id or "", client)
        how = " under a new member id" if is_renamed else ""
        return f"{{who}} came back{away}, the same process{how}"
    if kind is TriggerKind.ASSIGNOR_CHANGED and trigger.old_protocols:
        return f"{_HAPPENED[kind]} from {{old}} to {{new}}"
    if kind is TriggerKind.REGEX_RESOLVED and detail and trigger.member_id is not None:
        return "{who} subscribed to the regular expression {detail}"
    return _WITH_DETAIL.get(kind, _HAPPENED[kind]) if detail else _HAPPENED[kind]


def _of(timeout_ms: int | None) -> str:
    return "" if timeout_ms is None else f" of {duration(timeout_ms)}"


def _changed(trigger: TriggerRecord, protocol_type: str | None, follows: int | None) -> str:
    if trigger.old_protocols != trigger.new_protocols:
        old, new = listed(trigger.old_protocols), listed(trigger.new_protocols)
        return f"changed its assignors from {old} to {new}"
    if protocol_type != CONSUMER:  # Such as Connect's, whose metadata has another meaning.
        return "joined again with other metadata"
    if follows is not None:
        return f"joined again after rebalance {follows} had revoked partitions"
    if trigger.subscribed or trigger.unsubscribed:
        added = [f"+{topic}" for topic in trigger.subscribed]
        topics = listed([*added, *(f"-{topic}" for topic in trigger.unsubscribed)])
        return f"changed its subscription ({topics})"
    if trigger.same_subscription:
        return "joined again with the same subscription"
    return "joined again with another subscription or other owned partitions"


_CAME: Final = frozenset({TriggerKind.MEMBER_ADDED, TriggerKind.STATIC_ADDED})


def _stated(trigger: TriggerRecord) -> str:
    """Format the reason that the client states, marked as its statement."""
    text = trigger.reason_text
    if trigger.kind in _CAME and trigger.reason == JoinReason.RESTART.name:
        return ""  # Redundant: every new member has just started.
    text = f'"{shown(text)}"' if text and not is_first_join(text) else ""
    if trigger.reason_source == "tag":
        reason = trigger.reason or f"reason {trigger.reason_number}"
        return f", stating {reason} ({text})" if text else f", stating {reason}"
    return f", saying {text}" if text else ""


def _certainty(trigger: TriggerRecord) -> str:
    """Return how certain a cause is, and why; "" for a certain cause."""
    if trigger.certainty is Certainty.CERTAIN:
        return ""
    others = [_NOUNS[kind] for kind in trigger.candidates if kind is not trigger.kind]
    why = [_EVIDENCE[fact.kind].format(duration(fact.ms)) for fact in trigger.evidence]
    if others:
        why.append(f"it may also have been {' or '.join(dict.fromkeys(others))}")
    return f" ({trigger.certainty.value}{': ' if why else ''}{'; '.join(why)})"


_NOUNS: Final = {
    TriggerKind.MEMBER_LEFT: "a member that left",
    TriggerKind.SESSION_EXPIRED: "a session timeout",
    TriggerKind.REMOVED_BY_ADMIN: "an administrator",
    TriggerKind.REBALANCE_EXPIRED: "a rebalance timeout",
    TriggerKind.MEMBER_ADDED: "a new member",
    TriggerKind.STATIC_ADDED: "a new static member",
    TriggerKind.LEADER_REJOINED: "the leader, joining again",
    TriggerKind.PROTOCOLS_CHANGED: "a member that joined again",
}

_EVIDENCE: Final = {
    "last_commit": "its last commit was {} before",
    "last_join": "it had committed nothing for {}",
    "last_record": "its last record was written {} before",
    "not_taken": "it had not taken an assignment for {}",
    "poll": "the rebalance was seen {} before its end",
    "log_line": "the broker's log says that it left",
}
