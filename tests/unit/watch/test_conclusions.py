"""Conclusions that look safe and are not: each of these was once called certain, and was wrong."""

import pytest

from kohort.groups.consumer.member import LEFT_FOR_RESTART
from kohort.groups.consumer.records import (
    ClassicPart,
    ConsumerMemberRecord,
    ConsumerMemberTombstone,
    CurrentRecord,
    EpochRecord,
    EpochTombstone,
    RegexRecord,
    TargetEpochRecord,
)
from kohort.groups.encoding import encode_key, encode_value
from kohort.groups.records import (
    DurableRecord,
    GroupRecord,
    GroupTombstone,
    OffsetRecord,
    StoredMember,
)
from kohort.groups.requests import CommittedOffset
from kohort.protocol.codec import encode_versioned
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolAssignment, TopicPartition
from kohort.protocol.records.record import Record
from kohort.watch.core.fate import Timeouts
from kohort.watch.core.followed import Place, Poll
from kohort.watch.core.watcher import Json, Watcher

TOPIC_ID = b"t" * 16
SESSION_MS = 10_000


class Watched:
    """A watcher of one group; times are in seconds."""

    def __init__(self) -> None:
        self.watcher = Watcher({TOPIC_ID: "t"}, lambda group: Timeouts(SESSION_MS, 3_000))
        self.history: list[Json] = []
        self._offset = 0

    def store(self, at_s: float, *records: DurableRecord, epoch: int = 0) -> None:
        for record in records:
            at_ms = int(1_000 * at_s)
            stored = Record(encode_value(record), encode_key(record), (), at_ms, self._offset)
            self.history += self.watcher.take([stored], Place(0, self._offset, epoch))
            self._offset += 1

    def commit(self, partition: int, *times_s: float, epoch: int = 0) -> None:
        for at_s in times_s:
            committed = CommittedOffset(self._offset, 0, "", 0)
            self.store(at_s, OffsetRecord("g", "t", partition, committed), epoch=epoch)

    def poll(self, at_s: float, *member_ids: str) -> None:
        poll = Poll(int(1_000 * at_s), "PreparingRebalance", frozenset(member_ids))
        self.watcher.poll("g", poll)

    def last(self) -> Json:
        self.history += self.watcher.flush()
        return self.history[-1]

    def fate(self, member_id: str) -> tuple[str, str]:
        self.last()
        members = [member for record in self.history for member in record["members"]]
        (gone,) = [one for one in members if one["member_id"] == member_id and "certainty" in one]
        return gone["certainty"], gone["fate"]

    def cause(self, number: int) -> tuple[str, str]:
        """Of the rebalance that led to this generation or epoch."""
        self.last()
        (record,) = [one for one in self.history if one["generation"] == number]
        return record["trigger"]["certainty"], record["trigger"]["kind"]


def member(member_id: str, partition: int, rebalance_timeout_ms: int = 60_000) -> StoredMember:
    owned = TopicPartition(topic="t", partitions=[partition])
    share = encode_versioned(ConsumerProtocolAssignment(assigned_partitions=[owned]), 0)
    return StoredMember(
        member_id, None, member_id, "/h", SESSION_MS, rebalance_timeout_ms, b"", share
    )


def generation(number: int, at_s: float, *members: StoredMember) -> GroupRecord:
    leader = members[0].member_id if members else None
    return GroupRecord("g", "consumer", number, "range", leader, int(1_000 * at_s), members)


def consumer(member_id: str, *, classic: bool = False, regex: str = "") -> ConsumerMemberRecord:
    part = ClassicPart(SESSION_MS, ()) if classic else None
    return ConsumerMemberRecord(
        "g", member_id, None, None, member_id, "/h", ("t",), regex, 6_000, None, part
    )


def epoch_of(number: int, metadata_hash: int = 7) -> tuple[DurableRecord, ...]:
    return EpochRecord("g", number, metadata_hash), TargetEpochRecord("g", number, 0)


def current(member_id: str, epoch: int, state: int = 0) -> CurrentRecord:
    assigned = {TOPIC_ID: {0: epoch}}
    return CurrentRecord("g", member_id, epoch, epoch - 1, state, assigned, {})


A, B = member("a", 0), member("b", 1)


@pytest.fixture(name="watched")
def make_watched() -> Watched:
    return Watched()


def test_the_first_record_of_another_coordinator_is_no_sign_of_life(watched: Watched) -> None:
    """It had started the sessions anew before."""
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1)
    watched.commit(0, 20, epoch=1)
    watched.store(24, generation(2, 24, A), epoch=1)
    assert watched.fate("b")[0] == "unclear"


def test_an_expiry_is_counted_from_when_another_coordinator_took_over(watched: Watched) -> None:
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1, 2, 3)
    watched.commit(0, 40, epoch=1)
    watched.store(52, generation(2, 52, A), epoch=1)
    assert watched.fate("b") == ("likely", "session_expired")


def test_polls_of_a_rebalance_that_came_to_nothing_are_not_used(watched: Watched) -> None:
    """Its coordinator was killed, and then the member was there again."""
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1, 2, 3)
    watched.poll(4, "a")
    watched.commit(0, 15, epoch=1)
    watched.store(60, generation(2, 60, A), epoch=1)
    assert watched.fate("b")[0] == "unclear"


def test_the_last_of_several_rebalances_has_no_certain_cause(watched: Watched) -> None:
    watched.store(0, generation(1, 0, A))
    watched.commit(0, 1)
    watched.store(2, generation(3, 2))
    assert watched.cause(3)[0] == "unclear"


def test_the_first_member_of_a_group_may_have_gone_before_anything_was_stored() -> None:
    """In the same join phase, which it had begun and another one joined."""
    watched = Watched()
    watched.store(0, generation(0, 0))
    watched.store(6, generation(1, 6, A))
    assert watched.cause(1) == ("likely", "member_added")


def test_somebody_may_have_come_and_gone_before_the_last_member_left(watched: Watched) -> None:
    """In the same join phase, in which the last member did not join again."""
    watched.store(0, generation(1, 0, A))
    watched.commit(0, 1, 2)
    watched.store(2, generation(2, 2))
    assert watched.fate("a") == ("certain", "left")
    assert watched.cause(2) == ("likely", "member_left")


def test_nobody_knows_who_joined_and_went_before_anything_was_stored(watched: Watched) -> None:
    watched.store(0, generation(0, 0))
    watched.store(3, generation(1, 3))
    assert watched.cause(1) == ("unclear", "unknown")


def test_a_member_without_a_share_may_have_been_removed_for_that(watched: Watched) -> None:
    b = member("b", 1, rebalance_timeout_ms=5_000)
    watched.store(0, generation(1, 0, A, b))
    watched.watcher.rest(5_000, ())
    watched.poll(8, "a")
    watched.store(9, generation(2, 9, A))
    assert watched.fate("b") == ("likely", "left")


def test_an_expiry_beside_a_newcomer_of_unknown_time_is_no_likely_cause(watched: Watched) -> None:
    """It may have ended the join phase that the newcomer began."""
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1, 2, 3, 4)
    watched.store(16, generation(2, 16, A, member("c", 1)))
    assert watched.fate("b") == ("likely", "session_expired")
    assert watched.cause(2) == ("unclear", "session_expired")


@pytest.mark.parametrize(
    ("end_s", "certainty"),
    [(10.0, "likely"), (10.3, "likely"), (10.4, "unclear"), (13.1, "likely"), (22.1, "unclear")],
)
def test_in_a_group_that_commits_a_member_expires_when_the_session_of_its_join_ends(
    watched: Watched, end_s: float, certainty: str
) -> None:
    watched.store(0, generation(1, 0, A, B))
    watched.commit(0, 1)
    watched.store(end_s, generation(2, end_s, A))
    assert watched.fate("b") == (certainty, "session_expired")


def test_a_session_that_ends_beside_a_rebalance_that_was_not_stored_has_expired() -> None:
    watched = Watched()
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1)
    watched.store(11.1, generation(3, 11.1, A))
    assert watched.fate("b") == ("likely", "session_expired")


def test_in_a_group_without_commits_a_member_may_leave_at_that_time(watched: Watched) -> None:
    watched.store(0, generation(1, 0, A, B))
    watched.store(10, generation(2, 10, A))
    assert watched.fate("b")[0] == "unclear"


@pytest.mark.parametrize(
    ("first_poll", "certainty"), [(("a",), "likely"), (("a", "b"), "unclear")], ids=["gone", "not"]
)
def test_a_member_that_a_poll_shows_in_the_join_phase_did_not_begin_it_by_leaving(
    watched: Watched, first_poll: tuple[str, ...], certainty: str
) -> None:
    watched.store(0, generation(1, 0, A, B))
    watched.commit(1, 1, 2, 3)
    watched.poll(3.2, *first_poll)
    watched.poll(4.2, "a")
    watched.store(4.4, generation(2, 4.4, A))
    assert watched.cause(2) == (certainty, "member_left")


@pytest.mark.parametrize(
    ("first_poll", "certainty"), [(("a", "b"), "likely"), (("a",), "unclear")], ids=["there", "not"]
)
def test_a_newcomer_that_a_poll_of_the_join_phase_does_not_show_did_not_begin_it(
    watched: Watched, first_poll: tuple[str, ...], certainty: str
) -> None:
    watched.store(0, generation(1, 0, A))
    watched.commit(0, 1, 2)
    watched.poll(3, *first_poll)
    watched.poll(4, "a", "b")
    watched.store(4.4, generation(2, 4.4, A, B))
    assert watched.cause(2) == (certainty, "member_added")


def test_a_converted_group_is_upgraded_once(watched: Watched) -> None:
    watched.store(0, generation(1, 0, A))
    first = EpochRecord("g", 1, 0), TargetEpochRecord("g", 1, 0)
    batch: list[DurableRecord] = [consumer("a", classic=True), *first, consumer("b"), *epoch_of(2)]
    watched.store(5, GroupTombstone("g"), *batch, current("a", 1), current("b", 2))
    watched.store(9, consumer("c"), *epoch_of(3))
    watched.store(12, consumer("d"), *epoch_of(4))
    assert watched.cause(2) == ("certain", "upgraded")
    assert watched.cause(3) == ("certain", "member_added")


def downgraded(watched: Watched, *gone: str) -> None:
    """Let the classic member of a consumer group remain alone, when these go."""
    watched.store(0, consumer("a", classic=True), *map(consumer, gone), *epoch_of(2))
    tombstones = [ConsumerMemberTombstone("g", one) for one in ("a", *gone)]
    watched.store(5, *tombstones, EpochTombstone("g"), generation(4, 5, A))


def test_the_last_consumer_that_went_began_the_rebalance_after_a_downgrade() -> None:
    watched = Watched()
    downgraded(watched, "b")
    watched.store(8, generation(5, 8, A))
    assert watched.cause(5) == ("certain", "downgraded")
    assert watched.last()["trigger"]["member_id"] == "b"


def test_which_of_two_consumers_was_the_last_one_is_unknown(watched: Watched) -> None:
    downgraded(watched, "b", "c")
    watched.store(8, generation(5, 8, A))
    assert watched.cause(5) == ("certain", "downgraded")
    assert watched.last()["trigger"]["member_id"] is None


def test_the_rebalance_after_a_downgrade_may_come_to_nothing(watched: Watched) -> None:
    """Another coordinator has loaded the group at rest."""
    downgraded(watched, "b")
    watched.commit(0, 9, epoch=1)
    watched.store(50, generation(5, 50, A, B), epoch=1)
    assert watched.cause(5) == ("likely", "member_added")


def test_a_classic_member_that_takes_the_last_consumers_place_begins_no_rebalance() -> None:
    watched = Watched()
    place = consumer("b")._replace(instance_id="i")
    watched.store(0, consumer("a", classic=True), place, *epoch_of(2))
    tombstones = [ConsumerMemberTombstone("g", one) for one in ("a", "b")]
    heir = member("c", 1)._replace(instance_id="i")
    watched.store(5, *tombstones, EpochTombstone("g"), generation(2, 5, A, heir))
    watched.store(50, generation(3, 50, A, heir, member("d", 2)))
    assert watched.cause(3) == ("likely", "member_added")


@pytest.mark.parametrize("first_epoch", [2, 8], ids=["Kafka", "Kohort"])
def test_a_group_without_members_is_not_upgraded(watched: Watched, first_epoch: int) -> None:
    """Kafka begins anew with the epochs of a consumer group."""
    watched.store(0, generation(7, 0))
    watched.store(5, GroupTombstone("g"), consumer("a"), *epoch_of(first_epoch))
    watched.store(9, consumer("b"), *epoch_of(first_epoch + 1))
    watched.store(12, consumer("c"), *epoch_of(first_epoch + 2))
    assert watched.cause(first_epoch) == ("certain", "member_added")
    assert watched.cause(first_epoch + 1) == ("certain", "member_added")


def test_an_epoch_is_due_to_topics_only_if_their_hash_differs(watched: Watched) -> None:
    watched.store(0, consumer("a"), *epoch_of(2), current("a", 2))
    watched.store(5, *epoch_of(3), current("a", 3))
    watched.store(9, *epoch_of(4, metadata_hash=8), current("a", 4))
    assert watched.cause(3)[0] == "unclear"
    assert watched.cause(4) == ("certain", "topics_changed")


def test_a_static_member_that_returns_is_not_the_cause_of_an_epoch_for_topics() -> None:
    watched = Watched()
    first, second = consumer("a")._replace(instance_id="i"), consumer("b")._replace(instance_id="i")
    watched.store(0, first, *epoch_of(2), current("a", 2))
    watched.store(5, ConsumerMemberTombstone("g", "a"), second, *epoch_of(3, metadata_hash=8))
    watched.store(9, consumer("c"), *epoch_of(4, metadata_hash=8))
    assert watched.cause(3) == ("certain", "topics_changed")


def test_a_static_member_that_returns_under_its_old_id_with_other_topics_was_replaced() -> None:
    watched = Watched()
    place = consumer("a")._replace(instance_id="i")
    watched.store(0, place, *epoch_of(2), current("a", 2))
    watched.store(3, current("a", LEFT_FOR_RESTART))
    watched.store(5, place._replace(topic_names=("u",)), *epoch_of(3), current("a", 3))
    watched.store(9, consumer("c"), *epoch_of(4))
    assert watched.cause(3) == ("certain", "static_replaced")


def test_a_vote_for_an_assignor_beside_other_topics_may_not_have_counted(watched: Watched) -> None:
    watched.store(0, consumer("a"), *epoch_of(2), current("a", 2))
    voted = consumer("a")._replace(server_assignor="range")
    watched.store(5, voted, *epoch_of(3, metadata_hash=8), current("a", 3))
    watched.store(9, consumer("a"), *epoch_of(4, metadata_hash=8))
    watched.store(12, consumer("c"), *epoch_of(5, metadata_hash=8))
    assert watched.cause(3) == ("likely", "assignor_changed")
    assert watched.cause(4) == ("certain", "assignor_changed")


def test_of_changes_of_several_members_at_once_one_may_have_begun_no_epoch() -> None:
    watched = Watched()
    watched.store(0, consumer("a"), *epoch_of(2), current("a", 2))
    voted = consumer("a")._replace(server_assignor="range")
    watched.store(5, voted, consumer("b"), *epoch_of(3), current("a", 3))
    watched.store(9, consumer("c"), *epoch_of(4))
    assert watched.cause(3)[0] == "likely"


def test_an_expression_is_the_cause_once_it_has_been_resolved(watched: Watched) -> None:
    watched.store(0, consumer("a"), *epoch_of(2), current("a", 2))
    resolved = RegexRecord("g", "t.*", ("t",), 1, 0)
    watched.store(5, consumer("a", regex="t.*"), resolved, *epoch_of(3, 8), current("a", 3))
    assert watched.cause(3) == ("certain", "regex_resolved")


def test_a_member_that_commits_may_have_sent_no_heartbeat(watched: Watched) -> None:
    """So nothing says that it left."""
    watched.store(0, consumer("a"), consumer("b"), *epoch_of(2), current("a", 2))
    watched.commit(0, 2, 4, 6, 8)
    watched.store(9, ConsumerMemberTombstone("g", "a"), *epoch_of(3))
    watched.store(12, consumer("c"), *epoch_of(4))
    assert watched.cause(3) == ("likely", "member_left")


def test_a_member_that_keeps_partitions_for_too_long_has_not_left(watched: Watched) -> None:
    watched.store(0, consumer("a"), consumer("b"), *epoch_of(2), current("a", 2, state=1))
    watched.commit(0, 2, 4, 6)
    watched.store(6.5, ConsumerMemberTombstone("g", "a"), *epoch_of(3))
    watched.store(12, consumer("c"), *epoch_of(4))
    assert watched.cause(3) == ("unclear", "rebalance_expired")


def test_a_classic_member_of_a_consumer_group_may_not_have_joined_in_time(watched: Watched) -> None:
    watched.store(0, consumer("b"), *epoch_of(2), current("b", 2))
    watched.store(5, consumer("a", classic=True), *epoch_of(3))
    watched.store(8, ConsumerMemberTombstone("g", "a"), *epoch_of(4))
    watched.store(12, consumer("c"), *epoch_of(5))
    assert watched.cause(4) == ("unclear", "member_left")
