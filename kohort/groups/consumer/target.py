"""Computes the target assignment of a group, in steps: 5,000 members with 10,000 partitions take
longer than other groups should wait.
"""

from typing import Final

from kohort.groups.consumer.assignors import ASSIGNORS, AssignorMember
from kohort.groups.consumer.draft import Draft
from kohort.groups.consumer.epochs import preferred_assignor
from kohort.groups.consumer.member import Member
from kohort.groups.requests import Now
from kohort.groups.steps import SOME, Steps
from kohort.groups.topics import Topic, by_topic, existing_topics, flat

SMALL: Final = 500
"""Up to this sum of members, topics and partitions, an expired timer computes the target in one
step."""


def is_due(draft: Draft, now: Now) -> bool:
    """Whether a target has to be computed now: the epoch has increased, and the assignment interval
    is over.
    """
    return draft.epoch > draft.target_epoch and ms_left(draft, now) <= 0


def ms_left(draft: Draft, now: Now) -> int:
    """Return how much of the assignment interval is left."""
    interval_ms = draft.data.settings.assignment_interval_ms
    computed_ms = draft.target_computed_ms
    if not computed_ms or computed_ms > now.wall_ms:
        return 0
    return computed_ms + interval_ms - now.wall_ms


def target_steps(draft: Draft, now: Now) -> Steps[None]:
    """Compute the target for the present epoch."""
    data = draft.data
    topics = data.topics
    members = draft.members()
    known: dict[str, Topic] = {}
    subscriptions: dict[tuple[tuple[str, ...], str], frozenset[bytes]] = {}
    inputs: list[AssignorMember] = []
    for count, member_id in enumerate(sorted(members)):
        member = members[member_id]
        key = (member.topic_names, member.topic_regex)
        subscription = subscriptions.get(key)
        if subscription is None:
            names = {*member.topic_names, *draft.regex_topics(member.topic_regex)}
            known.update((yield from existing_topics(topics, names - known.keys())))
            subscription = subscriptions[key] = frozenset(
                topic[0] for name in names if (topic := known.get(name)) is not None
            )
        inputs.append(
            AssignorMember(
                member_id, member.instance_id, subscription, by_topic(draft.target(member_id))
            )
        )
        if count % SOME == 0:
            yield
    existing = dict(sorted(known.values()))
    assign = ASSIGNORS[preferred_assignor(draft, draft.votes())]
    targets = yield from assign(inputs, existing, homogeneous=_is_homogeneous(draft, members))
    for count, (member_id, target) in enumerate(targets.items()):
        partitions = flat(target)
        if partitions != draft.target(member_id):
            draft.set_target(member_id, partitions)
        if count % SOME == 0:
            yield
    draft.target_epoch = draft.epoch
    draft.target_computed_ms = now.wall_ms
    draft.is_target_computed = True


def _is_homogeneous(draft: Draft, members: dict[str, Member]) -> bool:
    """Whether all members have the same subscription, by the rule that Kafka applies."""
    regexes = {regex: count for regex, count in draft.regex_subscribers().items() if count > 0}
    subscriptions = {(member.topic_names, member.topic_regex) for member in members.values()}
    if not regexes:
        return len(subscriptions) <= 1
    return len(subscriptions) == 1 and not next(iter(subscriptions))[0]
