"""The records of a share group say the same as its coordinator."""

import pytest

from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.events import TriggerKind
from kohort.groups.history.facts import AssignedFacts, AvoidedFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.json_form import from_json
from kohort.groups.history.model import AssignedRecord, TriggerRecord
from kohort.groups.history.names import MemberFate
from kohort.groups.history.share_record import build_assigned
from kohort.protocol.records.record import Record
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place
from kohort.watch.core.watcher import Watcher
from tests.property.test_share_groups import STEPS, World

_WENT = {TriggerKind.MEMBER_LEFT, TriggerKind.SESSION_EXPIRED}


class Watched(World):
    """A group whose records a watcher reads, each append at a time of its own."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.watcher = Watcher({}, lambda group: Timeouts())
        self.seen: list[AssignedRecord] = []
        self.offset = 0

    def check_replay(self) -> None:
        super().check_replay()
        at_ms = self.now.wall_ms + len(self.appended)
        for record in self.appended[-1]:
            stored = Record(encode_value(record), encode_key(record), (), at_ms, self.offset)
            self._take(self.watcher.take([stored], Place(0, self.offset, 0)))
            self.offset += 1

    def _take(self, history: object) -> None:
        for record in map(from_json, history):  # type: ignore[call-overload]
            assert isinstance(record, AssignedRecord)
            self.seen.append(record)

    def restart(self) -> None:
        """Do nothing: a coordinator forgets why the epoch has increased, a watcher does not."""

    def own(self) -> list[AssignedRecord]:
        fold = GroupFold()
        for event in self.events:
            fold.observe(event, self.now)
        own = []
        for facts in fold.closed:
            if isinstance(facts, AvoidedFacts):
                # Refused clients leave no trace in the group's records.
                assert facts.cause.trigger.kind is TriggerKind.MEMBER_REFUSED
            else:
                assert isinstance(facts, AssignedFacts)
                own.append(build_assigned("g", facts))
        return own

    def flush(self) -> None:
        self._take(self.watcher.flush())


def cause(trigger: TriggerRecord) -> tuple[object, ...]:
    """Return what a watcher knows for sure: not how members went."""
    kind = "went" if trigger.kind in _WENT else trigger.kind.value
    return kind, trigger.member_id, trigger.client_id


def known(record: AssignedRecord) -> tuple[object, ...]:
    causes = [cause(one) for one in (record.trigger, *record.further_causes)]
    # The coordinator does not name what members give up because its topic is gone.
    members = [
        (
            one.member_id,
            one.fate in {MemberFate.KEPT, MemberFate.NEW},
            one.partitions.kept,
            one.partitions.gained,
        )
        for one in record.members
    ]
    return (
        (record.previous_generation, record.generation, record.partition_count),
        (record.members_before, record.members_after),
        sorted(causes, key=repr),
        sorted(members, key=repr),
    )


@pytest.mark.parametrize("seed", range(20))
def test_a_watcher_sees_the_assignments_and_their_causes(seed: int) -> None:
    group = Watched(seed)
    for _ in range(STEPS):
        group.step()
    group.flush()
    own = group.own()
    assert len(own) > 5, f"seed {seed}"
    assert [known(record) for record in group.seen] == [known(record) for record in own]
