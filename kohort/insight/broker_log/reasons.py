"""Parses the reasons that Kafka's coordinator logs for a rebalance, into causes of the history."""

import re
from typing import Final, NamedTuple

from kohort.insight.broker_log.lines import optional, parse_ids, reason_text

UNKNOWN: Final = "unknown"
"""The kind of a cause that is not logged (until Kafka 2.0), or logged in an unknown form."""

_BEHIND: Final = ") ("
"""A reason with these characters has an unknown form, with more text in parentheses. It is not
parsed, because this text would end up in an id."""

LEFT: Final = "member_left"
REMOVED_BY_ADMIN: Final = "removed_by_admin"
_BY_ADMIN: Final = "member was removed by an admin"
"""The reason sent by Java's admin client in a LeaveGroup for another member."""


class Cause(NamedTuple):
    kind: str
    member_id: str | None = None
    instance_id: str | None = None
    removed: tuple[str, ...] = ()
    text: str | None = None
    """The reason that the client stated (KIP-800)."""
    error: str | None = None
    detail: str | None = None
    """The logged reason if it could not be parsed."""


def parse_reason(reason: str | None) -> Cause:
    """Parse the text in parentheses after "Preparing to rebalance", if there is any."""
    if reason is None:
        return Cause(UNKNOWN)
    head, _, client_reason = reason.removesuffix(".").partition("; client reason: ")
    text = reason_text(client_reason)
    if _BEHIND in head:
        return Cause(UNKNOWN, text=text, detail=reason)
    for kind, pattern in _REASONS:
        match = pattern.fullmatch(head)
        if match is not None:
            return _cause(kind, match.groupdict(), text)
    return Cause(UNKNOWN, text=text, detail=reason)


def departure(text: str | None) -> str:
    return REMOVED_BY_ADMIN if text and text.startswith(_BY_ADMIN) else LEFT


def _cause(kind: str, parts: dict[str, str | None], text: str | None) -> Cause:
    member_id = parts.get("id")
    instance_id = optional(parts.get("instance"))
    removed = parse_ids(parts.get("ids") or "")
    if kind in {LEFT, "session_expired"} and member_id is not None:
        removed = (member_id,)
    if kind == LEFT:
        kind = departure(text)
    if kind == "member_added" and instance_id is not None:
        kind = "static_added"
    if member_id is None and len(removed) == 1:
        member_id = removed[0]
    return Cause(
        kind=kind,
        member_id=member_id,
        instance_id=instance_id,
        removed=removed,
        text=text,
        error=parts.get("error"),
    )


_OTHER_PROTOCOL: Final = (
    r"Group's selectedProtocol will change because static member (?P<id>.+) with "
    r"instance id (?P<instance>.+) joined with change of protocol"
)
# In some versions of Kafka the space before "during" is missing.
_NOT_STORED: Final = (
    r"[Ee]rror (?:(?P<error>\S.*?) )?when storing group assignment ?during SyncGroup "
    r"\(member: (?P<id>.+)\)"
)

_REASONS: Final = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        (
            "member_added",
            r"Adding new member (?P<id>.+?)(?: with group instance ?id (?P<instance>.+))?",
        ),
        ("session_expired", r"removing member (?P<id>.+) on heartbeat expiration"),
        (LEFT, r"[Rr]emoving member (?P<id>.+) on LeaveGroup"),
        (LEFT, r"explicit `LeaveGroup` request for (?P<ids>\(.*\)) members"),
        ("leader_rejoined", r"[Ll]eader (?P<id>.+) re-joining group during \w+"),
        (
            "static_replaced",
            r"Updating metadata for static member (?P<id>.+) with instance id (?P<instance>.+)",
        ),
        ("static_replaced", _OTHER_PROTOCOL),
        ("protocols_changed", r"Updating metadata for member (?P<id>.+?)(?: during \w+)?"),
        ("protocols_changed", r"Member (?P<id>.+) is joining group during \w+"),
        ("sync_expired", r"Removing (?P<ids>.+) on pending sync request expiration"),
        ("store_failed", _NOT_STORED),
        ("over_capacity", r"Freshly-loaded group .* is over capacity .*"),
    )
)
