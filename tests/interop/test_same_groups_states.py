"""Every request in every state of a group, from every kind of member, as Kafka answers it."""

import pytest

from tests.interop.same_answers import differences
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.group_scenes import NOBODY, STATES, Scene, scene_in
from tests.interop.same_answers.groups import plus, subscription
from tests.interop.same_answers.offsets import (
    INSTANCES_SINCE,
    commit,
    commit_request,
    commit_topic,
    delete_request,
    fetch_all,
)
from tests.interop.same_answers.pair import Pair
from tests.interop.same_answers.scenes import NOWHERE, Topic
from tests.support import messages as m

every_state = pytest.mark.parametrize("state", STATES)


def show(scene: Scene) -> None:
    """What happened, as far as it can be seen."""
    scene.group.describe()
    scene.group.list()
    for member in (scene.leader, scene.follower, scene.static):
        member.heartbeat()


@every_state
def test_heartbeats(pair: Pair, state: str) -> None:
    scene = scene_in(pair, state)
    for version in range(5):
        for member_id, instance in scene.speakers():
            if instance is not None and version < 3:
                continue
            for change in (0, 1, -1):
                request = m.HeartbeatRequest(
                    group_id=scene.group.id,
                    generation_id=plus(scene.generation, change),
                    member_id=member_id,
                    group_instance_id=instance,
                )
                pair.ask(request, version)
    show(scene)


@every_state
def test_syncs_that_are_refused(pair: Pair, state: str) -> None:
    scene = scene_in(pair, state)
    known = {id(member.id) for member in (scene.leader, scene.follower, scene.static)}
    for version in range(6):
        for member_id, instance in scene.speakers():
            if instance is not None and version < 3:
                continue
            for change in (0, 1, -1):
                if state == "CompletingRebalance" and not change and id(member_id) in known:
                    continue  # Those are parked.
                request = sync_request(scene, member_id, plus(scene.generation, change))
                request.group_instance_id = instance
                pair.ask(request, version)
    show(scene)


def sync_request(scene: Scene, member_id: Value, generation: Value) -> m.SyncGroupRequest:
    return m.SyncGroupRequest(
        group_id=scene.group.id,
        generation_id=generation,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=[],
    )


@every_state
def test_syncs_that_contradict_the_groups_protocol(pair: Pair, state: str) -> None:
    scene = scene_in(pair, state)
    for kind, name in (
        (None, "range"),
        ("consumer", None),
        (None, None),
        ("connect", "range"),
        ("consumer", "roundrobin"),
        ("", ""),
    ):
        for member in (scene.leader, scene.follower, scene.newcomer):
            request = sync_request(scene, member.id, scene.generation)
            request.protocol_type, request.protocol_name = kind, name
            pair.ask(request, 5)
    show(scene)


@pytest.mark.parametrize("version", range(6))
def test_syncs_wait_for_the_leader(pair: Pair, version: int) -> None:
    scene = scene_in(pair, "CompletingRebalance")
    waiting = [member.sync(version) for member in (scene.follower, scene.static)]
    assert all(one.is_parked() for one in waiting)
    waiting.append(scene.leader.sync(version, assign=[scene.leader, scene.static]))
    for one in waiting:
        one.answers()
    show(scene)


JOINS = (
    "a new member",
    "the newcomer",
    "the newcomer with an instance",
    "a new instance",
    "an unknown id",
    "the leader",
    "the follower",
    "the static member",
    "the static member without its instance",
    "the static member again",
    "the leader with the static member's instance",
    "the leader with an unknown instance",
    "an unknown id with the static member's instance",
)
WITH_INSTANCE = frozenset(name for name in JOINS if "instance" in name or "static" in name)


NEW = frozenset({"a new member", "a new instance"})


def joiner(scene: Scene, name: str) -> tuple[Value, str | None]:
    """Member id and instance id."""
    ours = scene.static.instance
    return {
        "a new member": ("", None),
        "the newcomer": (scene.newcomer.id, None),
        "the newcomer with an instance": (scene.newcomer.id, "another"),
        "a new instance": ("", "another"),
        "an unknown id": (NOBODY, None),
        "the leader": (scene.leader.id, None),
        "the follower": (scene.follower.id, None),
        "the static member": (scene.static.id, ours),
        "the static member without its instance": (scene.static.id, None),
        "the static member again": ("", ours),
        "the leader with the static member's instance": (scene.leader.id, ours),
        "the leader with an unknown instance": (scene.leader.id, NOBODY),
        "an unknown id with the static member's instance": (NOBODY, ours),
    }[name]


@every_state
@pytest.mark.parametrize(
    "versions", [(9,), pytest.param((0, 3, 4, 5, 6, 7, 8), marks=pytest.mark.long)]
)
@pytest.mark.parametrize("name", JOINS)
def test_joins(pair: Pair, state: str, name: str, versions: tuple[int, ...]) -> None:
    for version in versions:
        if version < 5 and name in WITH_INSTANCE:
            continue
        scene = scene_in(pair, state)
        member_id, instance = joiner(scene, name)
        who = scene.static if "static" in name else scene.newcomer
        if "leader" in name or "follower" in name:
            who = scene.leader if "leader" in name else scene.follower
        offers = [who.protocols["range"], subscription("other", user_data=b"changed")]
        for metadata in offers[:1] if name in NEW else offers:
            sender = scene.group.member(who.name, protocols={"range": metadata})
            changes = {"member_id": member_id}
            if version >= 5:
                changes["group_instance_id"] = instance
            pending = sender.join(version, **changes)
            if pending.is_parked(for_s=0.03):
                break
            differs = None
            if name == "the newcomer with an instance" and state in STATES_WITH_IDS:
                differs = differences.UNUSED_ID_OF_AN_INSTANCE
            pending.answers(differs=differs)
        show(scene)


STATES_WITH_IDS = frozenset(STATES) - {"absent", "deleted"}


@every_state
def test_leaving_by_id(pair: Pair, state: str, *, long_form: bool) -> None:
    # Since version 3 several may leave in one request.
    for version in range(6) if long_form else (2, 5):
        for name in ("leader", "follower", "static", "newcomer", NOBODY, ""):
            scene = scene_in(pair, state)
            member_id = getattr(scene, name).id if hasattr(scene, name) else name
            scene.group.leave(m.MemberIdentity(member_id=member_id), version=version)
            if name == "newcomer" and state in {"CompletingRebalance", "Stable"}:
                scene.group.describe(differs=differences.RETURNED_UNUSED_ID)
            else:
                scene.group.describe()


@every_state
def test_leaving_with_an_instance(pair: Pair, state: str, *, long_form: bool) -> None:
    for version in range(3, 6) if long_form else (5,):
        scene = scene_in(pair, state)
        for member_id, instance in (
            *(one for one in scene.speakers() if one != (scene.static.id, scene.static.instance)),
            (scene.static.id, scene.static.instance),
        ):
            if member_id in {scene.leader.id, scene.follower.id, scene.newcomer.id}:
                if instance is None:
                    continue
                if member_id == scene.newcomer.id:
                    continue
            if (member_id, instance) == (scene.static.id, None):
                continue
            scene.group.leave(
                m.MemberIdentity(member_id=member_id, group_instance_id=instance), version=version
            )
        scene.group.describe()


@every_state
def test_commits(pair: Pair, state: str, group_topic: Topic) -> None:
    scene = scene_in(pair, state)
    group = scene.group
    position = 0
    for version in range(2, 11):
        for member_id, instance in scene.speakers():
            if instance is not None and version < INSTANCES_SINCE:
                continue
            for generation in (plus(scene.generation, 0), plus(scene.generation, 1), 0, -1):
                position += 1
                request = commit_request(
                    group,
                    commit_topic(group_topic, {0: position, 1: 0}),
                    member_id=member_id,
                    generation_id_or_member_epoch=generation,
                    group_instance_id=instance,
                )
                pair.ask(request, version)
        fetch_all(group, group_topic, versions=(1, 8))
    show(scene)


@every_state
def test_fetching_offsets(pair: Pair, state: str, group_topic: Topic) -> None:
    scene = scene_in(pair, state)
    if state in {"Empty", "PreparingRebalance", "Stable"}:
        member = None if state == "Empty" else scene.leader
        commit(scene.group, group_topic, {0: 7, 2: 5}, member=member)
    fetch_all(scene.group, group_topic)
    show(scene)


@every_state
def test_deleting_offsets(pair: Pair, state: str, group_topic: Topic) -> None:
    scene = scene_in(pair, state)
    group = scene.group
    if state in {"Empty", "PreparingRebalance", "Stable"}:
        member = None if state == "Empty" else scene.leader
        commit(group, group_topic, {0: 7, 2: 5}, member=member)
    asked: list[dict[str, list[int]]] = [
        {group_topic.name: [0, 1]},
        {group_topic.name: [9, -1], NOWHERE.name: [0]},
        {group_topic.name: []},
        {},
    ]
    for topics in asked:
        pair.ask(delete_request(group, topics), 0)
    fetch_all(group, group_topic, versions=(8,))
    show(scene)


@every_state
def test_deleting_groups(pair: Pair, state: str, *, long_form: bool) -> None:
    for version in range(4) if long_form else (0, 3):
        scene = scene_in(pair, state)
        names = [scene.group.id, scene.group.id, "no-such-group"]
        pair.ask(m.DeleteGroupsRequest(groups_names=names), version)
        show(scene)


@every_state
def test_describing_groups(pair: Pair, state: str) -> None:
    scene = scene_in(pair, state)
    for version in range(7):
        request = m.DescribeGroupsRequest(groups=[scene.group.id, "no-such-group", scene.group.id])
        pair.ask(request, version)
        if version >= 3:
            request.include_authorized_operations = True
            pair.ask(request, version)


@every_state
def test_listing_groups(pair: Pair, state: str) -> None:
    scene = scene_in(pair, state)
    for version in range(6):
        pair.ask(m.ListGroupsRequest(), version, about=[scene.group.id])
    for filtered in (
        [state],
        [state.upper()],
        ["stable", "empty"],
        ["no such state"],
        ["Dead", ""],
    ):
        for version in (4, 5):
            scene.group.list(version, states_filter=filtered)
    for filtered in (["classic"], ["CLASSIC"], ["consumer"], ["no such type"], [""]):
        scene.group.list(5, types_filter=filtered)
        scene.group.list(5, types_filter=filtered, states_filter=[state])
