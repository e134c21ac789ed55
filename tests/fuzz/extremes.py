"""Requests that are in order but for one field, which is as small, long, empty or large as it gets.

Everything is taken from the declarations of the messages: which requests speak of groups, which
fields they have in a version, and what their types can hold. A new api is covered when it is there.
"""

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kohort.broker.handlers import load_handlers
from kohort.protocol.message import Struct, schema_of
from kohort.protocol.schema import Field
from kohort.protocol.types import ZERO_UUID, WireType

CLIENT_ID: Final = "client_id"
"""A field of every request's header."""

TOPIC: Final = "extremes"
SUBSCRIPTION: Final = b"\0\1\0\0\0\1\0\x08extremes\xff\xff\xff\xff"
LONGEST: Final = 32_767

_TEXTS: Final = ("", "\0", "x" * 250, "x" * LONGEST, "ü" * (LONGEST // 2), "\U0001f600", "nobody's")
_BLOBS: Final = (b"", b"\0", SUBSCRIPTION[:-5], b"\xff" * 20, bytes(100_000))
_UUIDS: Final = (ZERO_UUID, b"\xff" * 16)


@dataclass(slots=True)
class Scene:
    """A group in some state, and what a client of it would say."""

    group_id: str
    topic_id: bytes
    member_id: str = ""
    instance_id: str | None = None
    generation: int = -1
    client_id: bytes = b"member"
    """Client id of the group's member."""

    def values(self) -> Mapping[str, object]:
        """By the name of a field, what makes a request one of this group."""
        return {
            "group_id": self.group_id,
            "groups_names": [self.group_id],
            "coordinator_keys": [self.group_id],
            "key": self.group_id,
            "member_id": self.member_id,
            "group_instance_id": self.instance_id,
            "generation_id": self.generation,
            "generation_id_or_member_epoch": self.generation,
            "member_epoch": -1,
            "session_timeout_ms": 10_000,
            "rebalance_timeout_ms": 10_000,
            "retention_time_ms": -1,
            "protocol_type": "consumer",
            "protocol_name": "range",
            "metadata": SUBSCRIPTION,
            "assignment": b"share",
            "topic_id": self.topic_id,
            "partition_indexes": [0],
            "committed_offset": 5,
            "committed_metadata": "m",
        }


class Place(NamedTuple):
    """A field of a request, by the names that lead to it."""

    names: tuple[str, ...]
    field: Field | None
    """The field itself; None for the client id."""


@dataclass(frozen=True, slots=True)
class Call:
    """A request with its client id."""

    request: Any
    version: int
    client_id: bytes | None = b"extremes"


def group_requests() -> list[tuple[type, int]]:
    """Requests that are served and speak of groups, in all their versions."""
    return [
        (api.request, version)
        for api in load_handlers().values()
        if "Group" in api.request.__name__ or _names_groups(api.request)
        for version in range(api.versions.low, api.versions.high + 1)
    ]


def _names_groups(message: type) -> bool:
    return any(
        "group" in one.name
        or "coordinator" in one.name
        or (not isinstance(one.kind, WireType) and _names_groups(one.kind))
        for one in schema_of(message).fields
    )


def in_order(message: type, version: int, scene: Scene) -> Any:  # noqa: ANN401 - of any class.
    """A request that a member of the scene's group could send."""
    fields = [one for one in schema_of(message).fields if version in one.versions]
    return message(**{one.name: _ordinary(message, one, version, scene) for one in fields})


def _ordinary(owner: type, one: Field, version: int, scene: Scene) -> object:
    if one.name == "name":
        return "range" if "Protocol" in owner.__name__ else TOPIC
    if one.name in {"groups", "group_ids"} and isinstance(one.kind, WireType):
        return [scene.group_id]
    values = scene.values()
    if one.name in values:
        return values[one.name]
    if not isinstance(one.kind, WireType):
        element = in_order(one.kind, version, scene)
        return [element] if one.is_array else element
    if one.has_default:
        return one.make_default()
    least = _LEAST[one.kind.name]
    return [least] if one.is_array else least


_LEAST: Final = {
    **dict.fromkeys(("int8", "int16", "int32", "int64", "uint16", "uint32"), 0),
    "string": "",
    "bytes": b"",
    "bool": False,
    "uuid": ZERO_UUID,
}


def places(message: type, version: int) -> Iterator[Place]:
    """Every field of a request, those of nested structures and the client id included."""
    yield Place((CLIENT_ID,), None)
    yield from _places_in(message, version, ())


def _places_in(message: type, version: int, above: tuple[str, ...]) -> Iterator[Place]:
    for one in schema_of(message).fields:
        if version in one.versions:
            names = (*above, one.name)
            yield Place(names, one)
            if not isinstance(one.kind, WireType):
                yield from _places_in(one.kind, version, names)


def extremes(place: Place, version: int) -> tuple[object, ...]:
    """What may stand there and hardly ever does. An array is told how often to repeat itself."""
    one = place.field
    if one is None:
        return (None, b"", b"c" * LONGEST, "ü".encode() * (LONGEST // 2))
    null = (None,) if version in one.nullable else ()
    if one.is_array:
        return (*null, 0, 2, 1_000)
    if not isinstance(one.kind, WireType):
        return null
    name = one.kind.name
    if name == "bool":
        return (False, True)
    if "int" in name:
        bits = int(name.removeprefix("u").removeprefix("int"))
        low = 0 if name.startswith("u") else -(1 << (bits - 1))
        high = low + (1 << bits) - 1
        return tuple(sorted({low, low + 1, max(low, -2), max(low, -1), 0, 1, high - 1, high}))
    return (*null, *{"string": _TEXTS, "bytes": _BLOBS, "uuid": _UUIDS}.get(name, ()))


def put(call: Call, place: Place, value: object) -> Call:
    """The call with this value there; as it is, if what leads there is empty by now."""
    if place.field is None:
        assert value is None or isinstance(value, bytes)
        return Call(call.request, call.version, value)
    target: Any = call.request
    for name in place.names[:-1]:
        target = getattr(target, name)
        if isinstance(target, list):
            target = target[0] if target else None
        if target is None:
            return call
    if place.field.is_array and isinstance(value, int):
        value = (getattr(target, place.names[-1]) or [])[:1] * value
    assert isinstance(target, Struct)
    setattr(target, place.names[-1], value)
    return call


class Probe(NamedTuple):
    """One request to send to a group in some state."""

    state: str
    request: type
    version: int
    changes: tuple[tuple[Place, object], ...]

    def call(self, scene: Scene) -> Call:
        call = Call(in_order(self.request, self.version, scene), self.version)
        for place, value in self.changes:
            call = put(call, place, value)
        return call

    def __str__(self) -> str:
        changed = [f"{'.'.join(place.names)}={value!r:.40}" for place, value in self.changes]
        return f"{self.request.__name__} v{self.version} {', '.join(changed)} in {self.state}"


@dataclass(slots=True)
class Probes:
    """All probes there are, in an order that a seed decides."""

    states: tuple[str, ...]
    seed: int
    _all: list[Probe] = field(default_factory=list)

    def single(self) -> list[Probe]:
        """Each field at each of its extremes in each state."""
        found = [
            Probe(state, request, version, ((place, value),))
            for request, version in group_requests()
            for place in places(request, version)
            for value in extremes(place, version)
            for state in self.states
        ]
        random.Random(self.seed).shuffle(found)
        return found

    def paired(self, count: int) -> list[Probe]:
        """Two fields of a request at their extremes at once."""
        rng = random.Random(self.seed + 1)
        requests = group_requests()
        found = []
        for _ in range(count):
            request, version = rng.choice(requests)
            there = list(places(request, version))
            changes = [
                (place, rng.choice(values))
                for place in rng.sample(there, min(2, len(there)))
                if (values := extremes(place, version))
            ]
            found.append(Probe(rng.choice(self.states), request, version, tuple(changes)))
        return found
