"""What the records of a share group say, and how its members went."""

import json
from collections.abc import Sequence
from datetime import UTC

from kohort.broker.console.recent import Beginning, beginning_of
from kohort.broker.http.rebalance_json import with_sentence
from kohort.formats.text import utc_time
from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.history.sentence import record_sentence
from kohort.groups.records import DurableRecord
from kohort.groups.share.data import ShareMember, ShareState
from kohort.groups.share.records import StoredTopic
from kohort.groups.views import member_json
from kohort.insight.broker_log.lines import read_departure
from kohort.protocol.records.record import Record
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place
from kohort.watch.core.view import ShareView
from kohort.watch.core.watcher import Json, Watcher
from kohort.watch.seen import WatchedRebalances, encoded, text_of

JOBS, MORE = b"j" * 16, b"m" * 16
SESSION_S, HEARTBEAT_S = 10, 3
TIMEOUTS = Timeouts(share_session_ms=1_000 * SESSION_S, share_heartbeat_ms=1_000 * HEARTBEAT_S)


class Group:
    """A share group whose records a watcher reads; times are in seconds."""

    def __init__(self, timeouts: Timeouts = TIMEOUTS, state: ShareState | None = None) -> None:
        self.watcher = Watcher({}, lambda group: timeouts)
        self.history: list[Json] = []
        self.state = state or ShareState()
        self._offset = 0

    def store(self, at_s: float, new: ShareState) -> None:
        """Store the records that lead to a state, as coordinators do in one step."""
        self.write(at_s, new.records_since(self.state, "g"))
        self.state = new

    def write(self, at_s: float, records: Sequence[DurableRecord]) -> None:
        for record in records:
            at_ms = int(1_000 * at_s)
            stored = Record(encode_value(record), encode_key(record), (), at_ms, self._offset)
            self.history += self.watcher.take([stored], Place(0, self._offset, 0))
            self._offset += 1

    def last(self) -> Json:
        self.history += self.watcher.flush()
        return self.history[-1]

    # What happens.

    def bumped(self) -> ShareState:
        state = self.state.copy()
        state.epoch += 1
        return state

    def join(self, at_s: float, name: str, topics: tuple[str, ...] = ("jobs",)) -> None:
        state = self.bumped()
        state.members[name] = ShareMember(name, None, name, "/h", topics)
        self.assign(at_s, state)
        self.beat(at_s, name)

    def remove(self, at_s: float, name: str) -> None:
        state = self.bumped()
        state.remove(name)
        if not state.members:
            state.target_epoch, state.target_computed_ms = state.epoch, 0
        self.store(at_s, state)

    def initialize(self, at_s: float, topic_id: bytes, name: str, count: int) -> None:
        state = self.state.copy()
        state.initialized[topic_id] = StoredTopic(name, tuple(range(count)))
        self.store(at_s, state)

    def bump(self, at_s: float, metadata_hash: int | None = None) -> None:
        state = self.bumped()
        if metadata_hash is not None:
            state.metadata_hash = metadata_hash
        self.store(at_s, state)

    def assign(self, at_s: float, state: ShareState | None = None) -> None:
        """Divide all partitions, each to one of the members that subscribe to its topic."""
        state = state or self.state.copy()
        targets: dict[str, set[tuple[bytes, int]]] = {name: set() for name in state.members}
        for topic_id, topic in state.initialized.items():
            members = [one for one in state.members.values() if topic.name in one.topic_names]
            for number in topic.partitions if members else ():
                targets[members[number % len(members)].member_id].add((topic_id, number))
        state.targets = {name: frozenset(target) for name, target in targets.items()}
        state.target_epoch, state.target_computed_ms = state.epoch, int(1_000 * at_s)
        self.store(at_s, state)

    def beat(self, at_s: float, name: str) -> None:
        state = self.state.copy()
        member = state.members[name]
        state.members[name] = member._replace(
            epoch=state.target_epoch,
            previous_epoch=member.epoch,
            assigned=state.targets[name],
        )
        self.store(at_s, state)

    def fate(self, name: str) -> tuple[str, str]:
        (member,) = [one for one in self.last()["members"] if one["member_id"] == name]
        return member.get("certainty", "certain"), member["fate"]


def pair(at_s: float = 1.0, timeouts: Timeouts = TIMEOUTS) -> Group:
    """A group with two partitions and two members that have taken them."""
    group = Group(timeouts)
    group.initialize(at_s, JOBS, "jobs", 2)
    group.join(at_s + 0.1, "ann")
    group.join(at_s + 1.0, "bob")
    group.beat(at_s + 1.5, "ann")
    return group


def test_each_assignment_has_a_record_with_its_cause_and_what_moved() -> None:
    group = pair()
    group.last()
    first, second = group.history
    assert [record["kind"] for record in group.history] == ["assigned", "assigned"]
    assert (first["generation"], first["members_before"], first["members_after"]) == (2, 0, 1)
    assert (second["generation"], second["members_before"], second["members_after"]) == (3, 1, 2)
    cause = second["trigger"]
    assert (cause["kind"], cause["client_id"]) == ("member_added", "bob")
    assert cause["certainty"] == "certain"
    partitions = {one["member_id"]: one["partitions"] for one in second["members"]}
    assert partitions["ann"]["given_up"] == partitions["bob"]["gained"] == ["jobs-1"]
    assert second["observed"]["by"] == ["records"]


def test_partitions_that_are_initialized_after_a_join_are_a_cause_of_their_own() -> None:
    group = Group()
    group.join(1, "ann")
    group.initialize(2, JOBS, "jobs", 2)
    group.bump(4)
    group.assign(4)
    record = group.last()
    assert (record["trigger"]["kind"], record["generation"]) == ("initialized", 3)
    assert record["members"][0]["partitions"]["gained"] == ["jobs-0", "jobs-1"]


def test_a_coordinator_may_initialize_and_assign_partitions_in_one_step() -> None:
    group = pair()
    state = group.bumped()
    state.initialized[JOBS] = StoredTopic("jobs", (0, 1, 2))
    group.assign(5, state)
    assert group.last()["trigger"]["kind"] == "initialized"


def test_sessions_that_end_in_one_step_are_all_causes() -> None:
    group = pair()
    group.join(3, "cem")
    state = group.bumped()
    state.epoch += 1
    for name in ("bob", "cem"):
        state.remove(name)
    group.assign(60, state)
    record = group.last()
    causes = [record["trigger"], *record["further_causes"]]
    assert [cause["member_id"] for cause in causes] == ["bob", "cem"]
    assert (record["previous_generation"], record["generation"]) == (4, 6)


def test_topics_that_change_are_a_cause() -> None:
    group = pair()
    group.bump(5, metadata_hash=9)
    group.assign(5)
    record = group.last()
    assert (record["trigger"]["kind"], record["trigger"]["certainty"]) == (
        "topics_changed",
        "certain",
    )
    assert record["members"] == []


def test_a_subscription_that_changes_is_a_cause_with_its_topics() -> None:
    group = pair()
    group.initialize(3, MORE, "more", 1)
    state = group.bumped()
    state.members["bob"] = state.members["bob"]._replace(topic_names=("jobs", "more"))
    group.assign(4, state)
    trigger = group.last()["trigger"]
    assert (trigger["kind"], trigger["member_id"]) == ("subscription_changed", "bob")
    assert trigger["detail"] == "added more"


def test_a_member_whose_last_record_is_younger_than_its_session_probably_left() -> None:
    group = pair()
    group.remove(2.1 + SESSION_S - 0.5, "bob")
    group.assign(12)
    assert group.fate("bob") == ("likely", "left")
    (bob,) = [one for one in group.last()["members"] if one["member_id"] == "bob"]
    assert bob["partitions"]["given_up"] == ["jobs-1"]
    assert group.last()["trigger"]["evidence"] == [{"kind": "last_record", "ms": 9_600}]


def test_a_member_that_has_not_taken_an_assignment_for_long_has_probably_expired() -> None:
    group = pair()
    group.bump(5, metadata_hash=9)
    group.assign(5)
    group.beat(6, "ann")
    group.remove(13, "bob")
    group.assign(14)
    assert group.fate("bob") == ("likely", "session_expired")
    trigger = group.last()["trigger"]
    assert trigger["session_timeout_ms"] == 1_000 * SESSION_S
    assert [fact["kind"] for fact in trigger["evidence"]] == ["last_record", "not_taken"]


def test_how_a_member_of_a_quiet_group_went_is_unclear() -> None:
    group = pair()
    group.remove(300, "bob")
    group.assign(301)
    assert group.fate("bob") == ("unclear", "left")
    assert group.last()["trigger"]["candidates"] == ["member_left", "session_expired"]


def test_without_the_settings_of_the_group_nothing_is_concluded() -> None:
    group = pair(timeouts=TIMEOUTS._replace(is_known=False))
    group.remove(4, "bob")
    group.assign(5)
    assert group.fate("bob") == ("unclear", "left")


def test_the_log_of_the_broker_says_how_a_member_went() -> None:
    group = pair(at_s=1_767_362_400)
    text = "[2026-01-02 14:05:00,000] INFO [GroupId g] Member bob left the share group. (x.y)"
    line = read_departure(text, UTC)
    assert line is not None
    group.watcher.logs.add(line)
    group.remove(1_767_362_700, "bob")
    group.assign(1_767_362_701)
    assert group.fate("bob") == ("certain", "left")


def test_the_last_member_empties_the_group_which_may_be_deleted_and_come_again() -> None:
    group = pair()
    group.remove(4, "bob")
    group.remove(5, "ann")
    record = group.last()
    assert (record["members_before"], record["members_after"]) == (2, 0)
    assert [cause["member_id"] for cause in record["further_causes"]] == ["ann"]
    view = group.watcher.view("g")
    assert isinstance(view, ShareView)
    assert view.describe().state == "Empty"
    group.write(6, group.state.tombstones("g"))
    group.last()
    assert group.watcher.view("g") is None
    group.state = ShareState()
    group.join(7, "cem")
    assert group.last()["previous_generation"] == 0


def test_nothing_is_concluded_from_what_compaction_has_left() -> None:
    # The first record that is there is that of a later epoch.
    earlier = pair().state
    group = Group(state=earlier)
    group.bump(5, metadata_hash=9)
    group.assign(5)
    group.bump(7, metadata_hash=11)
    group.assign(7)
    record = group.last()
    assert (record["trigger"]["kind"], record["previous_generation"]) == ("topics_changed", 4)
    assert len(group.history) == 1


def test_an_assignment_whose_cause_is_compacted_away_has_no_record() -> None:
    group = Group(state=pair().state)
    group.bump(5, metadata_hash=9)
    group.assign(6)
    group.history += group.watcher.flush()
    assert group.history == []


def test_the_present_members_and_their_partitions_are_shown() -> None:
    group = pair()
    group.last()
    view = group.watcher.view("g")
    assert isinstance(view, ShareView)
    described = view.describe()
    assert (described.kind.value, described.state, described.member_count) == ("share", "Stable", 2)
    members = [member_json(described, member) for member in view.describe_members()]
    shown = [(one["client_id"], one["assignment"]) for one in members]
    assert shown == [("ann", {"jobs": [0]}), ("bob", {"jobs": [1]})]
    assert view.describe_waiting() is None


def test_pages_show_an_assignment_as_the_last_rebalance() -> None:
    record = pair().last()
    seen = WatchedRebalances()
    seen.add(encoded(record))
    assert seen.totals("g") == (1, 0)
    (kept,) = seen.stored_records("g")
    assert beginning_of(kept) == Beginning(record["at_ms"], "member_added")
    said = json.loads(with_sentence(text_of(record)))["sentence"]
    assert said == record_sentence(record, utc_time)
    assert said.endswith("1 member got 1 partition; 1 member gave up 1 partition")
