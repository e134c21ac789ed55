"""Decides when the group epoch increases; each bump has exactly one cause."""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final

from kohort.formats.text import listed
from kohort.groups.consumer.data import ResolvedRegex
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.member import Member
from kohort.groups.events import UNDER_OLD_ID, Trigger, TriggerKind
from kohort.groups.reasons import StatedReason
from kohort.groups.steps import Steps
from kohort.groups.topics import (
    existing_topics,
    metadata_hash,
    subscription_changes,
    topics_changed,
)

KNOWN_TOPICS_MAX: Final = 1_000
"""Maximum number of topics that a group remembers; with more, its history does not name the changed
ones."""


def note_member_change(
    draft: Draft,
    old: Member | None,
    new: Member,
    kind: TriggerKind,
    reason: StatedReason,
    silent_ms: int | None = None,
) -> Steps[None]:
    """Bump the epoch once if a change of a member may require another assignment.

    Args:
        draft: contains the change already.
        old: the member before the change, or the one that `new` replaces; None if it replaces none.
        new: the member as it is in `draft`.
        kind: the cause if the member is new or replaces another.
        reason: as stated by the client.
        silent_ms: how long the member that `new` replaces, or that `new` was until its session
            expired, has sent no heartbeat.
    """
    cause = _cause(draft, old, new, kind)
    if cause is None and not _are_topics_new(draft):
        return
    topics_changed = yield from check_topics(draft)
    if cause is None and topics_changed is not None:
        cause = topics_changed
        if kind is TriggerKind.UPGRADED:
            # The hash differs only because a classic group has none: the upgrade is the cause.
            cause = Trigger(kind, new.ref)
        elif old is not None and _is_dropped(draft, old.topic_regex):
            cause = _subscription_cause(old, new, kind)
    if cause is not None and cause.kind is TriggerKind.STATIC_REPLACED:
        cause = cause._replace(silent_ms=silent_ms)
    elif cause is not None and cause.kind is kind and silent_ms is not None:
        cause = cause._replace(same_process=True, away_ms=silent_ms)
    if cause is not None:
        draft.bump(cause._replace(reason=reason) if cause.member is not None else cause)


def note_topics(draft: Draft) -> Steps[None]:
    """Bump the epoch if subscribed topics were created, got partitions or were deleted."""
    if _are_topics_new(draft):
        cause = yield from check_topics(draft)
        if cause is not None:
            draft.bump(cause)


def _are_topics_new(draft: Draft) -> bool:
    """Whether any topic of the broker has changed since the subscribed topics were last checked.

    A changed regex alone is no reason to check: the old regex's topics leave the subscription when
    the new regex is resolved, so that a single new target contains both changes.
    """
    return draft.data.topics.version != draft.checked_version


def _cause(draft: Draft, old: Member | None, new: Member, kind: TriggerKind) -> Trigger | None:
    old_names = () if old is None else old.topic_names
    old_regex = "" if old is None else old.topic_regex
    if new.topic_regex != old_regex:
        # An expression is removed with its last subscriber.
        if draft.regex(old_regex) is not None and not draft.regex_subscribers()[old_regex]:
            draft.set_regex(old_regex, None)
        regex_counts = not new.topic_regex or draft.regex(new.topic_regex) is not None
    else:
        regex_counts = False
    assignors = _assignors(draft, old, new)
    if new.topic_names != old_names or regex_counts:
        cause = _subscription_cause(old, new, kind)
        if assignors is None:
            return cause
        before, after = assignors
        also = f"and changed the group's assignor from {before} to {after}"
        return cause._replace(detail=f"{cause.detail}, {also}" if cause.detail else also)
    if assignors is None:
        return None
    before, after = assignors
    return Trigger(
        TriggerKind.ASSIGNOR_CHANGED, new.ref, old_protocols=(before,), new_protocols=(after,)
    )


def _is_dropped(draft: Draft, regex: str) -> bool:
    """Whether the draft removes the resolved topics of a regular expression."""
    return regex in draft.data.regexes and draft.regex(regex) is None


def _subscription_cause(old: Member | None, new: Member, kind: TriggerKind) -> Trigger:
    """Return the cause of a bump for a member whose subscription differs from that of `old`."""
    if old is None or kind is TriggerKind.UPGRADED:
        return Trigger(kind, new.ref)
    if kind is TriggerKind.STATIC_REPLACED:
        return Trigger(kind, new.ref, detail=returned(old, new, "with another subscription"))
    return Trigger(
        TriggerKind.SUBSCRIPTION_CHANGED,
        new.ref,
        old_protocols=old.topic_names,
        new_protocols=new.topic_names,
        detail=", ".join(_subscription_changes(old, new)),
    )


def returned(old: Member | None, new: Member, how: str = "") -> str:
    """Describe a static member's return: a note if it kept its member id, then `how`."""
    if old is None or old.member_id != new.member_id:
        return how
    return f"{UNDER_OLD_ID}, {how}" if how else UNDER_OLD_ID


def _subscription_changes(old: Member, new: Member) -> Iterator[str]:
    """Yield what a member has added to its subscription and removed from it."""
    yield from subscription_changes(old.topic_names, new.topic_names)
    if new.topic_regex != old.topic_regex:
        if old.topic_regex:
            yield f"removed the regular expression {old.topic_regex}"
        if new.topic_regex:
            yield f"added the regular expression {new.topic_regex}"


def _assignors(draft: Draft, old: Member | None, new: Member) -> tuple[str, str] | None:
    """Return the group's assignors before and after a member's vote; None if the vote changes
    nothing.
    """
    old_assignor = None if old is None else old.server_assignor
    if new.server_assignor == old_assignor:
        return None
    votes = draft.votes()
    after = preferred_assignor(draft, votes)
    if new.server_assignor is not None:
        votes[new.server_assignor] -= 1
    if old_assignor is not None:
        votes[old_assignor] += 1
    before = preferred_assignor(draft, votes)
    return None if before == after else (before, after)


def check_topics(draft: Draft) -> Steps[Trigger | None]:
    """Compute the hash of the subscribed topics if topics or subscriptions have changed since it
    was last computed; return the cause for a bump if it differs, None if it does not.
    """
    topics = draft.data.topics
    version = topics.version
    if version == draft.checked_version and not draft.names_changed:
        return None
    draft.checked_version = version
    draft.names_changed = False
    names = subscribed_topics(draft)
    existing = yield from existing_topics(topics, names)
    known = draft.known_topics
    if known is not None:
        # Topics of a replaced expression were not deleted: nobody subscribes to them any more.
        known = {name: topic for name, topic in known.items() if name in names}
    draft.known_topics = existing if len(existing) <= KNOWN_TOPICS_MAX else None
    new_hash = yield from metadata_hash(existing)
    if new_hash == draft.metadata_hash:
        return None
    draft.metadata_hash = new_hash
    return topics_changed(known, existing)


def note_removals(draft: Draft, causes: Sequence[Trigger]) -> Steps[None]:
    """Bump the epoch once for each cause, because members were removed from `draft`."""
    if draft.data.regexes:
        subscribers = draft.regex_subscribers()
        for regex in draft.data.regexes:
            if not subscribers[regex]:
                draft.set_regex(regex, None)
    yield from check_topics(draft)
    for cause in causes:
        draft.bump(cause)
    if not draft.member_count:
        draft.target_epoch = draft.epoch
        draft.target_computed_ms = 0


def note_resolved(draft: Draft, resolved: dict[str, ResolvedRegex]) -> Steps[bool]:
    """Store the topics that the group's expressions match now; bump the epoch if a match has
    changed. Returns whether it was bumped.
    """
    changes: list[tuple[str, frozenset[str], frozenset[str]]] = []
    is_known = False
    for regex, result in resolved.items():
        before = draft.regex_topics(regex)
        if before != result.topics:
            changes.append((regex, before, result.topics))
            is_known |= draft.regex(regex) is not None
        draft.set_regex(regex, result)
    if not changes:
        return False
    yield from check_topics(draft)
    subscriber: Member | None = None
    detail = listed([_matches(*change) for change in changes])
    if len(changes) == 1 and not is_known:
        ((regex, _, topics),) = changes
        subscriber = _subscriber(draft, regex)
        if subscriber is not None:
            detail = f"{regex}, which matches {listed(sorted(topics))}"
    removed = {name for _, before, after in changes for name in before - after}
    added = {name for _, before, after in changes for name in after - before}
    draft.bump(
        Trigger(
            TriggerKind.REGEX_RESOLVED,
            None if subscriber is None else subscriber.ref,
            old_protocols=tuple(sorted(removed)),
            new_protocols=tuple(sorted(added)),
            detail=detail,
        )
    )
    return True


def _matches(regex: str, before: frozenset[str], after: frozenset[str]) -> str:
    """Describe which topics an expression newly matches, and which it no longer matches."""
    verbs = (
        ("also matches" if before else "matches", after - before),
        ("no longer matches", before - after),
    )
    changes = [f"{verb} {listed(sorted(names))}" for verb, names in verbs if names]
    return f"{regex} {' and '.join(changes)}"


def _subscriber(draft: Draft, regex: str) -> Member | None:
    """Return the only member that subscribes to an expression, None if there are several."""
    if draft.data.regex_subscribers[regex] != 1:
        return None
    return next(m for m in draft.data.members.values() if m.topic_regex == regex)


def preferred_assignor(draft: Draft, counts: Counter[str]) -> str:
    """Return the assignor with the most votes, even if that is 0; on a tie, the first one in the
    broker's list.
    """
    names = draft.data.settings.assignors
    return max(names, key=lambda name: counts[name])


def subscribed_topics(draft: Draft) -> set[str]:
    """Return the names of all topics that members subscribe to, existing or not."""
    names = {name for name, count in draft.subscribers().items() if count > 0}
    for regex, count in draft.regex_subscribers().items():
        if count > 0:
            names |= draft.regex_topics(regex)
    return names
