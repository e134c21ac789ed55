"""Collects the changes of one command until they are durable, and increases the group epoch."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.groups.events import RemovalReason, Trigger, TriggerKind
from kohort.groups.requests import Now
from kohort.groups.share.assignor import assign
from kohort.groups.share.data import NO_PARTITIONS, ShareData, ShareMember, ShareState
from kohort.groups.share.records import StoredTopic
from kohort.groups.steps import Steps
from kohort.groups.topics import (
    Partition,
    Topic,
    existing_topics,
    metadata_hash,
    topics_changed,
)

SMALL: Final = 500
"""Up to this sum of members and partitions, an expired timer computes the target in one step."""

KNOWN_TOPICS_MAX: Final = 1_000
"""Maximum number of topics that a group remembers; with more, a cause does not name the changed
ones."""


@dataclass(slots=True, eq=False)
class ShareDraft:
    """A changed copy of a group's state; the group stays as it is until the copy is durable."""

    data: ShareData
    state: ShareState = field(init=False)
    causes: list[Trigger] = field(default_factory=list)
    """The causes of the epoch bumps, one for each."""
    removed: list[tuple[ShareMember, RemovalReason]] = field(default_factory=list)
    heartbeat_of: str | None = None
    """The member whose session the command restarts."""
    checked_version: int = field(init=False)
    known_topics: Mapping[str, Topic] | None = field(init=False)

    def __post_init__(self) -> None:
        self.state = self.data.state.copy()
        self.checked_version = self.data.checked_version
        self.known_topics = self.data.known_topics

    def bump(self, cause: Trigger) -> None:
        """Increase the group epoch by one."""
        self.state.epoch += 1
        self.causes.append(cause)

    # Topics.

    def existing(self) -> Steps[dict[str, Topic]]:
        """Return the subscribed topics that exist, by name."""
        return existing_topics(self.data.topics, self.state.subscribed_topics())

    def note_topics(self, cause: Trigger | None = None) -> Steps[None]:
        """Compare the subscribed topics with those at the last comparison, initialize their
        partitions, and bump the epoch once if there is a cause, topics have changed, or an
        initialized partition is in no target although the target is up to date.

        Args:
            cause: the change of a member that needs another assignment.
        """
        state = self.state
        self.checked_version = self.data.topics.version
        existing = yield from self.existing()
        known = self.known_topics
        self.known_topics = existing if len(existing) <= KNOWN_TOPICS_MAX else None
        new_hash = yield from metadata_hash(existing)
        if new_hash != state.metadata_hash:
            state.metadata_hash = new_hash
            if cause is None:
                cause = topics_changed(known, existing)
        for name, topic in existing.items():
            self.initialize(topic.topic_id, StoredTopic(name, tuple(range(topic.partition_count))))
        if cause is None and state.epoch == state.target_epoch and self._lacks_members(existing):
            cause = Trigger(TriggerKind.INITIALIZED)
        if cause is not None:
            self.bump(cause)

    def _lacks_members(self, existing: Mapping[str, Topic]) -> bool:
        """Whether an initialized partition of an existing topic is in no target."""
        targets = self.state.targets.values()
        assigned: frozenset[Partition] = NO_PARTITIONS.union(*targets)
        initialized = self.state.initialized
        return any(
            (topic_id, number) not in assigned
            for topic_id, _ in existing.values()
            for number in initialized[topic_id].partitions
        )

    def initialize(self, topic_id: bytes, topic: StoredTopic) -> None:
        """Mark a topic's partitions as initialized."""
        present = self.state.initialized.get(topic_id)
        if present is not None:
            if set(topic.partitions) <= set(present.partitions):
                return
            numbers = sorted({*present.partitions, *topic.partitions})
            topic = StoredTopic(topic.name, tuple(numbers))
        self.state.initialized[topic_id] = topic

    def forget_topics(self) -> None:
        """Drop the initialized partitions of topics that do not exist."""
        initialized, name_of = self.state.initialized, self.data.topics.name_of
        for topic_id in [topic_id for topic_id in initialized if name_of(topic_id) is None]:
            del initialized[topic_id]

    # Members.

    def remove(self, member: ShareMember, reason: RemovalReason, cause: Trigger) -> Steps[None]:
        """Remove a member, and bump the epoch."""
        state = self.state
        state.remove(member.member_id)
        self.removed.append((member, reason))
        self.bump(cause)
        # The hash alone is updated: the next heartbeat initializes partitions of changed topics.
        state.metadata_hash = yield from metadata_hash((yield from self.existing()))
        if not state.members:
            state.target_epoch = state.epoch
            state.target_computed_ms = 0

    # The target assignment.

    def ms_left(self, now: Now) -> int:
        """Return how much of the assignment interval is left."""
        computed_ms = self.state.target_computed_ms
        if not computed_ms or computed_ms > now.wall_ms:
            return 0
        return max(computed_ms + self.data.settings.assignment_interval_ms - now.wall_ms, 0)

    @property
    def is_small(self) -> bool:
        """Whether the group is so small that an expired timer computes the target in one step."""
        initialized = self.state.initialized.values()
        return len(self.state.members) + sum([len(t.partitions) for t in initialized]) <= SMALL

    def is_due(self, now: Now) -> bool:
        """Whether a target has to be computed now: the epoch has increased, and the assignment
        interval is over.
        """
        return self.state.epoch > self.state.target_epoch and not self.ms_left(now)

    def target_steps(self, now: Now) -> Steps[None]:
        """Compute the target for the present epoch."""
        state = self.state
        existing = yield from self.existing()
        by_names: dict[tuple[str, ...], frozenset[bytes]] = {}
        for member in state.members.values():
            names = member.topic_names
            if names not in by_names:
                topics = [existing[name].topic_id for name in names if name in existing]
                by_names[names] = frozenset(topics)
        targets = yield from assign(
            {key: by_names[member.topic_names] for key, member in state.members.items()},
            {key: topic.partitions for key, topic in state.initialized.items()},
            state.targets,
        )
        for member_id, target in targets.items():
            if state.targets.get(member_id) != target:
                state.targets[member_id] = target
        state.target_epoch = state.epoch
        state.target_computed_ms = now.wall_ms

    def reconciled(self, member: ShareMember, *, names_changed: bool) -> ShareMember:
        """Return the member with its target assignment, limited to the topics it subscribes to."""
        state = self.state
        if member.epoch != state.target_epoch:
            target = state.targets.get(member.member_id, NO_PARTITIONS)
            member = member._replace(epoch=state.target_epoch, previous_epoch=member.epoch)
        elif names_changed:
            target = member.assigned
        else:
            return member
        name_of = self.data.topics.name_of
        names = {topic_id: name_of(topic_id) for topic_id, _ in target}
        wanted = set(member.topic_names)
        unwanted = {key for key, name in names.items() if name not in wanted}
        if unwanted:
            target = frozenset([p for p in target if p[0] not in unwanted])
        return member._replace(assigned=target)
