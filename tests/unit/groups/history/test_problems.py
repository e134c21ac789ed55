"""Records of what needs somebody's attention: whose fault it was, and what it cost."""

from kohort.groups.events import TriggerKind
from kohort.groups.history.fold import RESTART_MS
from kohort.groups.history.sentence import sentence
from kohort.groups.refusals import CLIENTS_MAX
from kohort.protocol.codec import encode_versioned
from kohort.protocol.errors import ErrorCode
from kohort.protocol.messages.consumer_protocol import ConsumerProtocolSubscription
from tests.support.groups.chronicle import Chronicle
from tests.support.groups.scenario import SECOND


def subscribing(*topics: str) -> tuple[tuple[str, bytes], ...]:
    return (("range", encode_versioned(ConsumerProtocolSubscription(topics=[*topics]), 1)),)


def test_partitions_of_a_silent_member_had_no_reader_since_its_last_heartbeat() -> None:
    s = Chronicle()
    first, second = s.eager((0, 1), (2, 3))
    s.advance(6 * SECOND)
    s.heartbeat(first)
    s.advance(4 * SECOND)
    s.heartbeat(first)
    s.join(first)
    s.advance(SECOND)
    s.assign({first: (0, 1, 2, 3)})

    assert s.last.trigger.member_id == second
    assert (s.last.unread.partition_count, s.last.unread.member_count) == (2, 1)
    assert s.last.unread.longest_ms == 11 * SECOND
    assert "its 2 partitions had no reader for 11 s" in sentence(s.last)


def test_two_processes_with_one_static_id_are_a_problem_once_the_older_shows_it_lives() -> None:
    s = Chronicle()
    members = s.stable_static("one", "two")
    s.join(instance="two")
    s.heartbeat(members["two"], instance="two")
    s.heartbeat(members["two"], instance="two")

    came, problem = s.avoided_records
    assert came.trigger.kind is TriggerKind.STATIC_REPLACED
    assert problem.trigger.kind is TriggerKind.INSTANCE_FENCED
    assert (problem.trigger.instance_id, problem.trigger.error) == ("two", "FENCED_INSTANCE_ID")
    assert problem.trigger.member_id == came.trigger.member_id
    assert "group.instance.id" in sentence(problem)


def test_a_process_that_is_not_told_of_its_successor_shows_itself_by_its_member_id() -> None:
    s = Chronicle()
    members = s.stable_static("one", "two")
    old = members["two"]
    for _ in range(20):
        new = s.join(instance="two").answer.member_id
        s.heartbeat(old)
        old = new
    problems = [
        record for record in s.avoided_records if record.trigger.kind is TriggerKind.INSTANCE_FENCED
    ]
    assert len(problems) == 1
    # That they take it from each other is told once, too.
    assert len(s.avoided_records) <= 4


def test_a_client_without_a_common_assignor_is_a_problem_once_in_a_while() -> None:
    s = Chronicle()
    s.eager((0, 1), (2,))
    offers = (("cooperative-sticky", b""),)
    for _ in range(3):
        s.join(protocols=offers)
        s.advance(SECOND)

    (problem,) = s.avoided_records
    trigger = problem.trigger
    assert trigger.kind is TriggerKind.PROTOCOL_REFUSED
    assert trigger.error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL.name
    assert trigger.new_protocols == ("cooperative-sticky",)
    assert trigger.old_protocols
    assert "cooperative-sticky" in sentence(problem)
    assert trigger.old_protocols[0] in sentence(problem)


def test_refused_clients_with_ever_new_ids_do_not_displace_a_groups_rebalances() -> None:
    s = Chronicle()
    s.eager((0, 1), (2,))
    for number in range(10 * CLIENTS_MAX):
        s.join(protocols=(("cooperative-sticky", b""),), client_id=f"c-{number}")
    assert len(s.avoided_records) == CLIENTS_MAX


def rejoined(before: tuple[str, ...], after: tuple[str, ...], reason: str | None) -> Chronicle:
    """The leader joins again."""
    s = Chronicle()
    (leader,) = s.completing(1, protocols=subscribing(*before))
    s.assign({leader: (0,)})
    s.join(leader, protocols=subscribing(*after), text=reason)
    return s


def test_a_changed_subscription_names_the_topics() -> None:
    s = rejoined(("a", "b"), ("b", "c"), None)
    trigger = s.running().trigger
    assert (trigger.subscribed, trigger.unsubscribed) == (("c",), ("a",))
    assert trigger.same_subscription is False
    assert "(+c, -a)" in sentence(s.running())


def test_an_application_that_enforces_a_rebalance_is_said_to() -> None:
    s = rejoined(("a",), ("a",), "operator asked for it")
    trigger = s.running().trigger
    assert trigger.same_subscription is True
    assert (trigger.reason, trigger.reason_source) == ("ENFORCED", "text")
    assert 'enforced a rebalance, saying "operator asked for it"' in sentence(s.running())


def test_the_first_rebalance_that_a_restart_of_the_broker_can_have_caused_says_so() -> None:
    s = Chronicle()
    first, second = s.eager((0, 1), (2,))
    s.fold.restarted_ms = s.ms
    s.advance(SECOND)
    s.leave(second)
    assert s.running().restart_ms is None
    s.join(first)
    s.assign({first: (0, 1, 2)})
    s.advance(SECOND)
    third, _ = s.join_dynamic()
    assert s.running().restart_ms == 2 * SECOND
    assert "after the broker's restart" in sentence(s.running())
    s.join(first)
    s.assign({first: (0, 1), third: (2,)})
    s.join_dynamic()
    assert s.running().restart_ms is None


def test_a_rebalance_long_after_a_restart_has_other_causes() -> None:
    s = Chronicle()
    first, second = s.eager((0, 1), (2,))
    s.fold.restarted_ms = s.ms - RESTART_MS - 1
    s.leave(second)
    assert s.running().restart_ms is None
    s.join(first)


def test_a_member_that_sent_heartbeats_but_did_not_join_is_said_not_to_poll() -> None:
    s = Chronicle()
    first, stuck, leaver = s.eager((0,), (1,), (2,))
    s.leave(leaver)
    s.join(first)
    for _ in range(4):
        s.advance(5 * SECOND)
        s.heartbeat(stuck)
    assert s.running().waited_for.were_told
    assert "did not rejoin" in sentence(s.running())
    s.leave(stuck)
    s.assign({first: (0, 1, 2)})
    assert s.last.waited_for.member_ids == (stuck,)
    told = sentence(s.last)
    assert "or it was finishing records of partitions that it gave up), then left" in told
    # Of the one that left, and of the stuck one since it was told.
    assert s.last.unread.longest_ms == 20 * SECOND


def test_a_static_restart_long_before_is_not_part_of_the_wait() -> None:
    s = Chronicle()
    members = s.stable_static("one", "two")
    new = s.join(instance="two").answer.member_id
    for _ in range(2):
        s.advance(5 * SECOND)
        s.heartbeat(members["one"], instance="one")
    assert s.running().trigger.member_id == new
    s.advance(SECOND)
    s.join(members["one"], instance="one")
    assert s.running().waited_for.ms == SECOND


def test_members_that_missed_their_session_timeouts_together_are_all_said_to_have() -> None:
    s = Chronicle()
    s.eager((0,), (1,), (2,))
    s.join_dynamic()
    s.advance(10 * SECOND)
    assert ", which missed their session timeout of 10 s" in sentence(s.running())
