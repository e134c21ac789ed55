"""The history of a share group says why its partitions were assigned again."""

from kohort.broker.metrics.rebalances import RebalanceMetrics
from kohort.groups.history.build import build_avoided
from kohort.groups.history.facts import AssignedFacts, AvoidedFacts
from kohort.groups.history.fold import GroupFold
from kohort.groups.history.sentence import sentence
from kohort.groups.history.share_record import build_assigned
from kohort.groups.share.data import ShareSettings
from kohort.groups.share.requests import ShareHeartbeatRequest
from tests.support.groups.share_group import ShareGroup


def new_group(interval_ms: int) -> ShareGroup:
    group = ShareGroup(ShareSettings(assignment_interval_ms=interval_ms))
    group.topics.change("t", 3)
    group.topics.change("u", 1)
    return group


def sentences(group: ShareGroup) -> list[str]:
    fold = GroupFold()
    for event in group.events:
        fold.observe(event, group.now)
    said: list[str] = []
    for facts in fold.closed:
        if isinstance(facts, AvoidedFacts):
            said.append(sentence(build_avoided("g", facts)).split(": ", 1)[-1])
            continue
        assert isinstance(facts, AssignedFacts)
        said.append(sentence(build_assigned("g", facts)).split(", ", 1)[-1])
    return said


def test_a_client_refused_by_a_full_group_is_recorded_once() -> None:
    group = ShareGroup(ShareSettings(assignment_interval_ms=0, max_size=1))
    group.topics.change("t", 3)
    group.join("m1", "t")
    for member_id in ("m2", "m3"):
        late = ShareHeartbeatRequest(
            member_id, 0, topic_names=("t",), client_id="late", client_host="10.0.0.7"
        )
        group.heartbeat(late)

    _, refusal = sentences(group)
    assert refusal.startswith("client late (host 10.0.0.7) was refused (GROUP_MAX_SIZE_REACHED)")


def test_each_assignment_has_its_cause() -> None:
    group = new_group(0)
    group.join("m1", "t")
    group.join("m2", "t", "u")
    group.beat("m1")
    group.heartbeat(ShareHeartbeatRequest("m1", 3, topic_names=("u",)))
    group.change_topic("t", 2)
    group.beat("m2")
    group.leave("m1")
    group.pass_time(0)
    group.pass_time(45_000)
    assert sentences(group) == [
        "epoch 0 -> 2, because member m1 joined; 1 member got 3 partitions",
        (
            "epoch 2 -> 3, because member m2 joined; 1 member got 2 partitions;"
            " 1 member gave up 1 partition"
        ),
        (
            "epoch 3 -> 4, because member m1 changed its subscription: added u, removed t;"
            " 2 members got 3 partitions; 1 member gave up 2 partitions"
        ),
        (
            "epoch 4 -> 5, because topics of the group have changed: t grew from 3 to 5"
            " partitions; 1 member got 2 partitions"
        ),
        "epoch 5 -> 6, because member m1 left; no member's partitions changed",
        ("epoch 6 -> 7, because member m2 missed its session timeout of 45 s; the group is empty"),
    ]


def test_bumps_within_the_assignment_interval_are_causes_of_one_assignment() -> None:
    group = new_group(1_000)
    group.join("m1", "t")
    group.join("m2", "t")
    group.join("m3", "t")
    group.pass_time(1_000)
    first, second = sentences(group)
    assert first == "epoch 0 -> 2, because member m1 joined; 1 member got 3 partitions"
    assert second == (
        "epoch 2 -> 4, because 2 members joined (m2, m3); 2 members got 2 partitions;"
        " 1 member gave up 2 partitions"
    )
    metrics = RebalanceMetrics()
    for event in group.events:
        if event.__class__ in metrics.observed:
            metrics.observe("g", event, group.now)
    assert (metrics.share_bump_count, metrics.bump_count) == (3, 0)
