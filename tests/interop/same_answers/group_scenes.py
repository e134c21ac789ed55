"""A group in each of its states, with members of every kind."""

from collections.abc import Callable, Iterator, Mapping
from typing import Final, NamedTuple

from kohort.protocol.messages.groups import DeleteGroupsRequest
from tests.interop.same_answers.each import Value
from tests.interop.same_answers.groups import Group, Member
from tests.interop.same_answers.pair import Pair

NOBODY: Final = "nobody"


class Scene(NamedTuple):
    """A group, and who was, is or wants to be in it."""

    group: Group
    leader: Member
    follower: Member
    static: Member
    newcomer: Member
    """Has an id and has not used it, except where the state needs it to."""

    def speakers(self) -> Iterator[tuple[Value, str | None]]:
        """Every kind of member id with every kind of instance id."""
        ids = (self.leader.id, self.follower.id, self.static.id, self.newcomer.id, NOBODY, "")
        for member_id in ids:
            for instance in (None, self.static.instance, NOBODY, ""):
                yield member_id, instance

    @property
    def generation(self) -> Value:
        return self.leader.generation


def _cast(pair: Pair) -> Scene:
    group = Group(pair)
    return Scene(
        group,
        group.member("leader"),
        group.member("follower"),
        group.member("static", instance="an-instance"),
        group.member("newcomer"),
    )


def _in_stable(pair: Pair) -> Scene:
    scene = _cast(pair)
    scene.group.settle(scene.leader, scene.follower, scene.static)
    scene.newcomer.ask_for_id()
    return scene


def _in_completing(pair: Pair) -> Scene:
    scene = _cast(pair)
    scene.group.gather(scene.leader, scene.follower, scene.static)
    scene.newcomer.ask_for_id()
    return scene


def _in_preparing(pair: Pair) -> Scene:
    scene = _in_stable(pair)
    other = scene.group.member("cause")
    other.park()
    scene.group.wait_members(4)
    return scene


def _in_empty(pair: Pair) -> Scene:
    scene = _cast(pair)
    scene.group.settle(scene.leader, scene.follower, scene.static)
    scene.group.leave(scene.leader, scene.follower, scene.static)
    scene.newcomer.ask_for_id()
    return scene


def _deleted(pair: Pair) -> Scene:
    """The nearest that clients get to Dead."""
    scene = _in_empty(pair)
    pair.ask(DeleteGroupsRequest(groups_names=[scene.group.id]), 2)
    return scene


def _absent(pair: Pair) -> Scene:
    scene = _cast(pair)
    for member in (scene.leader, scene.follower, scene.static, scene.newcomer):
        member.id, member.generation = f"{member.name}-id", 1
    return scene


STATES: Final[Mapping[str, Callable[[Pair], Scene]]] = {
    "absent": _absent,
    "deleted": _deleted,
    "Empty": _in_empty,
    "PreparingRebalance": _in_preparing,
    "CompletingRebalance": _in_completing,
    "Stable": _in_stable,
}


def scene_in(pair: Pair, state: str) -> Scene:
    """A new group in that state; Kafka is asked whether it is."""
    scene = STATES[state](pair)
    if state not in {"absent", "deleted"}:
        scene.group.check_state(state)
    return scene
