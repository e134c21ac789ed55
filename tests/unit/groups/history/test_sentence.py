"""What people are told of a rebalance."""

from dataclasses import replace

import pytest

from kohort.formats.text import duration, shown, utc_time
from kohort.groups.events import TriggerKind
from kohort.groups.history.evidence import evidence
from kohort.groups.history.model import (
    AvoidedRecord,
    LeaderChange,
    MemberTimeline,
    RebalanceOutcome,
    RebalanceRecord,
    Stopped,
    Timeline,
    TriggerRecord,
    Unread,
    WaitedFor,
)
from kohort.groups.history.sentence import sentence

AT_MS = 1_700_000_000_000 - 1_700_000_000_000 % 86_400_000 + (14 * 3600 + 3 * 60 + 7) * 1000
EXPIRED = TriggerRecord(
    kind=TriggerKind.SESSION_EXPIRED,
    at_ms=AT_MS,
    member_id="X",
    instance_id="y",
    host="/z",
    removed=("X",),
    removed_count=1,
    session_timeout_ms=45_000,
)
RECORD = RebalanceRecord(
    group="g",
    sequence=7,
    previous_generation=41,
    generation=42,
    previous_state="Stable",
    started_at_ms=AT_MS,
    trigger=EXPIRED,
    outcome=RebalanceOutcome.STABLE,
    stopped=Stopped(member_count=11, longest_ms=3_200, total_ms=30_000),
    waited_for=WaitedFor(phase="join", member_ids=("W",), ms=2_900),
    timeline=Timeline(
        join_phase_ms=2_900,
        join_phase_end="all_joined",
        leader_synced_ms=3_100,
        durable_ms=3_105,
        finished_ms=3_105,
    ),
    leader="W",
    leader_change=LeaderChange.LEFT,
    members_before=12,
    members_after=11,
)


def caused_by(kind: TriggerKind, **changes: object) -> str:
    fields = {"member_id": "X"} | changes
    trigger = TriggerRecord(kind=kind, at_ms=AT_MS, **fields)  # type: ignore[arg-type]
    text = sentence(replace(RECORD, trigger=trigger, stopped=Stopped(), waited_for=WaitedFor()))
    return text.removeprefix("rebalanced at 14:03:07, generation 41 -> 42, because ")


def test_one_sentence_says_when_why_who_how_long_and_for_whom() -> None:
    assert sentence(RECORD) == (
        "rebalanced at 14:03:07, generation 41 -> 42, because member X (static id y, host z) "
        "missed its session timeout of 45 s; 11 members stopped for up to 3.2 s; it waited 2.9 s "
        "for member W"
    )


def joined(member_id: str, session_ms: int | None, rebalance_ms: int | None) -> MemberTimeline:
    return MemberTimeline(
        member_id=member_id, session_timeout_ms=session_ms, rebalance_timeout_ms=rebalance_ms
    )


def test_it_says_which_timeout_ended_the_wait_or_will() -> None:
    members = (joined("V", 10_000, 60_000), joined("U", 45_000, 300_000), joined("W", None, None))
    timeline = replace(RECORD.timeline, join_phase_end="timeout")
    record = replace(RECORD, members=members, timeline=timeline)

    assert sentence(record).endswith("for member W, until the rebalance timeout of 5 min")
    assert sentence(replace(record, members=())).endswith(
        "for member W, until the rebalance timeout"
    )
    running = replace(record, outcome=RebalanceOutcome.RUNNING, timeline=Timeline())
    assert sentence(running).endswith("for member W, and may wait for 5 min, the rebalance timeout")


def test_the_evidence_has_the_timeouts_that_joins_asked_for() -> None:
    alike = (joined("V", 10_000, 60_000), joined("U", 10_000, 60_000), joined("W", None, None))
    text = "session timeout 10 s, rebalance timeout 60 s"

    assert told(alike) == [text]
    other = (*alike, joined("T", 45_000, None))
    assert told(other) == [f"{text}: V, U", "session timeout 45 s: T"]
    many = tuple(joined(f"m{one}", 10_000 + 1_000 * one, None) for one in range(8))
    assert len(told(many)) == 6
    assert told(many)[-1] == "and 3 other pairs of timeouts"


def told(members: tuple[MemberTimeline, ...]) -> list[str]:
    """What the evidence has of their timeouts."""
    lines = evidence(replace(RECORD, members=members))
    return [line for line in lines if "timeout" in line and "broker saw" not in line]


@pytest.mark.parametrize("kind", TriggerKind)
def test_every_cause_has_words(kind: TriggerKind) -> None:
    text = caused_by(kind)
    assert text
    assert "{" not in text


@pytest.mark.parametrize("outcome", RebalanceOutcome)
def test_every_outcome_has_words(outcome: RebalanceOutcome) -> None:
    sentences = {sentence(replace(RECORD, outcome=one)) for one in RebalanceOutcome}
    assert len(sentences) == len(RebalanceOutcome)
    assert "14:03:07" in sentence(replace(RECORD, outcome=outcome))


def test_it_is_not_known_how_long_a_client_that_kept_its_connection_did_not_poll() -> None:
    left = TriggerRecord(
        kind=TriggerKind.MEMBER_LEFT, at_ms=AT_MS, member_id="X", still_connected=True
    )
    unread = Unread(partition_count=2, member_count=1, longest_ms=900)
    cost = "its 2 partitions had no reader while it did not poll and for 900 ms after it left"
    assert cost in sentence(replace(RECORD, trigger=left, unread=unread))
    left = replace(left, unfetched_ms=300_000)
    assert "its 2 partitions had no reader for 900 ms" in sentence(
        replace(RECORD, trigger=left, unread=unread)
    )


def test_members_with_random_ids_are_named_with_their_client_ids() -> None:
    joins = [
        TriggerRecord(
            kind=TriggerKind.MEMBER_ADDED, at_ms=AT_MS, member_id=member_id, client_id="app"
        )
        for member_id in ("Dc1JWSvWSByVO1yU0QSKbQ", "app-1")
    ]
    record = replace(RECORD, trigger=joins[0], further_causes=(joins[1],))
    assert " 2 members joined (Dc1JWSvW (client.id app), app-1)" in sentence(record)


def test_members_that_did_the_same_are_counted() -> None:
    def cause(kind: TriggerKind, name: str) -> TriggerRecord:
        return TriggerRecord(kind=kind, at_ms=AT_MS, member_id=name)

    joins = [cause(TriggerKind.MEMBER_ADDED, name) for name in "abcde"]
    record = replace(RECORD, trigger=joins[0], further_causes=(*joins[1:], EXPIRED))
    assert " 5 members joined (a, b, c and 2 more)" in sentence(record)
    left = [cause(TriggerKind.MEMBER_LEFT, name) for name in "ab"]
    empty = replace(record, trigger=left[0], further_causes=(left[1],))
    assert " 2 members left (a, b)" in sentence(replace(empty, outcome=RebalanceOutcome.EMPTY))
    one = replace(
        empty,
        further_causes=(),
        members_before=1,
        outcome=RebalanceOutcome.EMPTY,
        waited_for=WaitedFor(),
    )
    assert "member a was the last to leave; the group is empty" in sentence(one)


def test_random_parts_of_member_ids_are_short_in_texts() -> None:
    uuid = "78c6b6f2-0d5f-4b7e-9a51-3b1f0c9d2e4a"
    assert "member java-0-78c6b6f2 joined" in caused_by(
        TriggerKind.MEMBER_ADDED, member_id=f"java-0-{uuid}"
    )
    assert "member Zm9vYmFy joined" in caused_by(
        TriggerKind.MEMBER_ADDED, member_id="Zm9vYmFyYmF6cXV4cXV1eA"
    )
    record = replace(RECORD, waited_for=WaitedFor(phase="join", member_ids=(f"w-{uuid}",), ms=9))
    assert uuid not in "\n".join([sentence(record), *evidence(record)])


def test_the_text_of_every_first_join_says_nothing() -> None:
    text = "need to re-join with the given member-id: java-0-78c6"
    said = caused_by(
        TriggerKind.MEMBER_ADDED, reason="RESTART", reason_source="text", reason_text=text
    )
    assert said == "member X joined"


def test_the_second_half_of_a_cooperative_rebalance_is_told_as_such() -> None:
    trigger = replace(RECORD.trigger, kind=TriggerKind.PROTOCOLS_CHANGED)
    second = replace(RECORD, trigger=trigger, protocol_type="consumer", follows=3)
    assert "joined again after rebalance 3 had revoked partitions" in sentence(second)
    # It supersedes another one, whatever that has revoked.
    early = replace(second, previous_state="CompletingRebalance")
    assert "after rebalance 3" not in sentence(early)


def test_an_avoided_rebalance_says_what_did_not_happen() -> None:
    trigger = TriggerRecord(
        kind=TriggerKind.LEADER_REJOINED,
        at_ms=AT_MS,
        member_id="X",
        reason="RESTART",
        reason_source="tag",
        row=13,
    )
    record = AvoidedRecord(group="g", sequence=8, generation=42, at_ms=AT_MS, trigger=trigger)
    assert sentence(record) == (
        "did not rebalance at 14:03:07, generation 42 stays, although the leader, member X, joined "
        "again, stating RESTART"
    )
    assert "the client stated: RESTART" in evidence(record)


def test_one_that_runs_says_for_whom_it_waits() -> None:
    text = sentence(replace(RECORD, outcome=RebalanceOutcome.RUNNING, stopped=Stopped()))
    assert text.startswith("has been rebalancing since 14:03:07, after generation 41, because ")
    assert text.endswith("it has been waiting 2.9 s for member W")


def test_a_wait_that_goes_on_since_a_join_says_so() -> None:
    # The line below counts from the beginning of the rebalance.
    running = replace(RECORD, outcome=RebalanceOutcome.RUNNING, stopped=Stopped())
    at_once, later = (
        sentence(replace(running, members=(MemberTimeline(member_id="V", join_received_ms=ms),)))
        for ms in (0, 200)
    )
    assert at_once.endswith("it has been waiting 2.9 s for member W")
    assert later.endswith("it has been waiting 2.9 s, since the last join, for member W")


def test_what_members_call_themselves_cannot_break_the_line_or_the_terminal() -> None:
    hostile = replace(EXPIRED, member_id="a\nb\x1b[2J", instance_id="\u202e", host="\r")
    text = sentence(replace(RECORD, trigger=hostile))
    assert text.isprintable()
    assert "a\\nb\\x1b[2J" in text


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (999, "999 ms"),
        (1_000, "1 s"),
        (3_249, "3.2 s"),
        (45_000, "45 s"),
        (120_000, "2 min"),
        (330_500, "5 min 30 s"),
        (3_599_999, "59 min 59 s"),
        (3_600_000, "1 h"),
        (33_069_000, "9 h 11 min"),
    ],
)
def test_durations_have_the_unit_that_fits(ms: int, text: str) -> None:
    assert duration(ms) == text


def test_small_words() -> None:
    assert utc_time(0) == "00:00:00"
    assert shown("plain ünïcode") == "plain ünïcode"
    assert shown("\ud800") == "\\ud800"
