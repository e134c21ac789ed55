"""When the group epoch grows, and why: each bump has exactly one cause."""

import hashlib
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Final

from kohort.groups.consumer.data import ResolvedRegex
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import Member
from kohort.groups.events import Trigger, TriggerKind
from kohort.groups.reasons import StatedReason

try:
    from xxhash import xxh3_64_intdigest as _hash
except ImportError:
    # Spark's executors replay histories with the standard library alone. Their hashes are compared
    # with each other and never stored.
    def _hash(data: bytes) -> int:  # type: ignore[misc]
        return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "big")


_FORMAT: Final = b"\0"

_COUNT: Final = struct.Struct("<i").pack

_SIGNED_64: Final = struct.Struct("<q")

_UNSIGNED_64: Final = struct.Struct("<Q")

_UUID_HALVES: Final = struct.Struct(">qq")


def note_member_change(
    draft: Draft, old: Member | None, new: Member, kind: TriggerKind, reason: StatedReason
) -> None:
    """Bump the epoch once if a member's new value may need another assignment.

    Args:
        draft: contains the change already.
        old: the member before, or the one whose place it takes; None if it is new.
        new: the member as it is in `draft`.
        kind: the cause if the member is new or takes another's place.
        reason: what the client states.
    """
    cause = _cause(draft, old, new, kind)
    changed_topics = check_topics(draft, always=cause is not None)
    if cause is None and changed_topics is not None:
        cause = topics_changed(changed_topics)
    if cause is not None:
        draft.bump(cause._replace(reason=reason) if cause.member is not None else cause)


def _cause(draft: Draft, old: Member | None, new: Member, kind: TriggerKind) -> Trigger | None:
    is_new = old is None
    old_names = () if old is None else old.topic_names
    old_regex = "" if old is None else old.topic_regex
    if new.topic_regex != old_regex:
        # The last subscriber of an expression takes it along.
        if draft.regex(old_regex) is not None and not regex_subscribers(draft)[old_regex]:
            draft.set_regex(old_regex, None)
        regex_counts = not new.topic_regex or draft.regex(new.topic_regex) is not None
    else:
        regex_counts = False
    if new.topic_names != old_names or regex_counts:
        if is_new or kind is TriggerKind.STATIC_REPLACED or kind is TriggerKind.UPGRADED:
            return Trigger(kind, new.ref)
        detail = ""
        if new.topic_regex != old_regex:
            detail = f"expression {old_regex!r} -> {new.topic_regex!r}"
        return Trigger(
            TriggerKind.SUBSCRIPTION_CHANGED,
            new.ref,
            old_protocols=old_names,
            new_protocols=new.topic_names,
            detail=detail,
        )
    if new.server_assignor == (None if old is None else old.server_assignor):
        return None
    before = preferred_assignor(draft, draft.data.votes)
    after = preferred_assignor(draft, votes(draft))
    if before != after:
        return Trigger(
            TriggerKind.ASSIGNOR_CHANGED,
            new.ref,
            old_protocols=(before,),
            new_protocols=(after,),
        )
    return None


def check_topics(draft: Draft, *, always: bool = False) -> tuple[str, ...] | None:
    """Compute the hash of the subscribed topics if topics have changed since it was last computed,
    or `always`; return names of subscribed topics if it differs, None if it does not.
    """
    topics = draft.data.topics
    version = topics.version
    if not always and version == draft.checked_version:
        return None
    draft.checked_version = version
    names = subscribed_topics(draft)
    existing = {name: topic for name in names if (topic := topics.get(name)) is not None}
    new_hash = metadata_hash(existing)
    if new_hash == draft.metadata_hash:
        return None
    draft.metadata_hash = new_hash
    return tuple(sorted(names))


def topics_changed(names: tuple[str, ...]) -> Trigger:
    """Return the cause of a bump because subscribed topics were created, have grown or were
    deleted. `names` are the subscribed topics.
    """
    return Trigger(TriggerKind.TOPICS_CHANGED, grown_topics=names)


def note_removals(draft: Draft, causes: Sequence[Trigger]) -> None:
    """Bump the epoch once for each cause, because members were removed from `draft`."""
    subscribers = regex_subscribers(draft)
    for regex in list(draft.data.regexes):
        if not subscribers[regex]:
            draft.set_regex(regex, None)
    check_topics(draft, always=True)
    for cause in causes:
        draft.bump(cause)
    if not draft.member_count:
        draft.target_epoch = draft.epoch
        draft.target_computed_ms = 0


def note_resolved(draft: Draft, resolved: dict[str, ResolvedRegex]) -> bool:
    """Take over what all expressions of the group match now; bump the epoch if some have other
    topics than before. Returns whether it has.
    """
    changed: list[str] = []
    for regex, result in resolved.items():
        if draft.regex_topics(regex) != result.topics:
            changed.append(regex)
        draft.set_regex(regex, result)
    if not changed:
        return False
    check_topics(draft, always=True)
    draft.bump(Trigger(TriggerKind.REGEX_RESOLVED, detail=", ".join(changed)))
    return True


def votes(draft: Draft) -> Counter[str]:
    """Count the members that ask for each assignor."""
    counts = Counter(draft.data.votes)
    for member_id, member in draft.changed_members().items():
        old = draft.data.members.get(member_id)
        if old is not None and old.server_assignor is not None:
            counts[old.server_assignor] -= 1
        if member is not None and member.server_assignor is not None:
            counts[member.server_assignor] += 1
    return counts


def preferred_assignor(draft: Draft, counts: Counter[str]) -> str:
    """Return the assignor with the most votes; of several, and without votes, the first in the
    broker's list.
    """
    names = draft.data.settings.assignors
    return max(names, key=lambda name: counts[name])


def regex_subscribers(draft: Draft) -> Counter[str]:
    """Count the members that subscribe to each expression."""
    counts = Counter(draft.data.regex_subscribers)
    for member_id, member in draft.changed_members().items():
        old = draft.data.members.get(member_id)
        if old is not None and old.topic_regex:
            counts[old.topic_regex] -= 1
        if member is not None and member.topic_regex:
            counts[member.topic_regex] += 1
    return counts


def subscribed_topics(draft: Draft) -> set[str]:
    """Return the names of all topics that members subscribe to, existing or not."""
    counts = Counter(draft.data.subscribers)
    for member_id, member in draft.changed_members().items():
        old = draft.data.members.get(member_id)
        if old is not None:
            counts.subtract(old.topic_names)
        if member is not None:
            counts.update(member.topic_names)
    names = {name for name, count in counts.items() if count > 0}
    for regex, count in regex_subscribers(draft).items():
        if count > 0:
            names |= draft.regex_topics(regex)
    return names


def metadata_hash(topics: Mapping[str, tuple[bytes, int]]) -> int:
    """Return the hash of subscribed topics as Kafka computes and stores it: a signed int64; 0 if
    there is no topic. The group epoch grows when it changes.

    Args:
        topics: id and number of partitions of the existing topics, by name.
    """
    if not topics:
        return 0
    hashes = [_topic_hash(name, *topics[name]) for name in sorted(topics)]
    return _signed(_hash(b"".join(map(_UNSIGNED_64.pack, hashes))))


@lru_cache(maxsize=1_000)
def _topic_hash(name: str, topic_id: bytes, partition_count: int) -> int:
    high, low = _UUID_HALVES.unpack(topic_id)
    encoded = name.encode("utf-16-le")
    parts = (
        _FORMAT,
        _SIGNED_64.pack(high) + _SIGNED_64.pack(low),
        encoded + _COUNT(len(encoded) // 2),
        _COUNT(partition_count),
        # The racks of each partition's replicas would follow its number; this broker has none.
        struct.pack(f"<{partition_count}i", *range(partition_count)),
    )
    return _hash(b"".join(parts))


def _signed(value: int) -> int:
    signed: int = _SIGNED_64.unpack(_UNSIGNED_64.pack(value))[0]
    return signed
