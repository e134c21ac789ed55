"""Our dataclass against the standard one: the same behaviour, made later."""

import copy
import dataclasses
import pickle
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, ClassVar

import pytest

from kohort.protocol import lazy_dataclass

Decorator = Callable[..., Any]

OURS: Decorator = lazy_dataclass.dataclass
THEIRS: Decorator = dataclasses.dataclass
OPTIONS = [
    {"frozen": frozen, "slots": slots, "eq": eq, "kw_only": kw_only}
    for frozen in (False, True)
    for slots in (False, True)
    for eq in (False, True)
    for kw_only in (False, True)
]


def make_point(dataclass: Decorator, **options: bool) -> Any:  # noqa: ANN401 - a class.
    @dataclass(**options)
    class Point:
        """A point."""

        x: int
        y: int = 2
        tags: list[str] = dataclasses.field(default_factory=list, compare=False)
        length: int = dataclasses.field(init=False, repr=False, default=0)
        color: str = dataclasses.field(init=False, default="red")
        names: list[str] = dataclasses.field(init=False, compare=False, default_factory=list)
        half: float = dataclasses.field(init=False)
        dimensions: ClassVar[int] = 2

        def __post_init__(self) -> None:
            object.__setattr__(self, "length", self.x + self.y)
            object.__setattr__(self, "half", self.length / 2)

    return Point


def outcome(call: Callable[..., object], *arguments: object, **named: object) -> object:
    """What a call returns, or which exception it raises with which text."""
    try:
        return call(*arguments, **named)
    except (TypeError, AttributeError) as error:
        return type(error), str(error)


def behaviour(point: Any) -> list[object]:  # noqa: ANN401 - a class made in the test.
    """All that can be told of a class from outside."""
    one, same, other = point(x=1), point(x=1, tags=["a"]), point(x=1, y=3)
    return [
        repr(one),
        (one.x, one.y, one.tags, one.length, one.color, one.names, one.half, point.dimensions),
        (one == same, one == other, one == 1, one != other),
        outcome(lambda: hash(one) == hash(same)),
        repr(outcome(point, 1, 2)),
        outcome(point),
        outcome(point, x=1, unknown=2),
        (point.__match_args__, point.__doc__, point.__name__),
        [field.name for field in dataclasses.fields(point)],
        dataclasses.asdict(other),
        repr(dataclasses.replace(other, x=7)),
        repr(copy.copy(other)),
        hasattr(one, "__dict__"),
        outcome(setattr, one, "x", 5),
        outcome(delattr, one, "y"),
        outcome(repr, one),
    ]


@pytest.mark.parametrize("options", OPTIONS)
def test_a_class_behaves_like_one_of_the_standard_decorator(options: dict[str, bool]) -> None:
    theirs, ours = make_point(THEIRS, **options), make_point(OURS, **options)
    assert behaviour(ours) == behaviour(theirs)


@pytest.mark.parametrize("slots", [False, True])
def test_an_attribute_that_is_no_field_cannot_be_set_when_frozen(slots: bool) -> None:
    # The standard decorator of Python 3.11 raises a TypeError about super() if there are slots.
    instance = make_point(OURS, frozen=True, slots=slots)(1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        instance.unknown = 5


METHODS = ("__init__", "__repr__", "__eq__", "__hash__")


@pytest.mark.parametrize("first", METHODS)
def test_the_first_call_of_a_method_puts_it_in_place_and_an_instance_needs_only_one(
    first: str,
) -> None:
    point = make_point(OURS, frozen=True)
    stubs = {name: vars(point)[name] for name in METHODS}
    instance = object.__new__(point)
    for name, value in dataclasses.asdict(make_point(THEIRS)(1)).items():
        object.__setattr__(instance, name, value)
    arguments = {"__init__": (1,), "__eq__": (instance,)}.get(first, ())
    getattr(point, first)(instance, *arguments)
    replaced = {name for name, stub in stubs.items() if vars(point)[name] is not stub}
    assert replaced == ({"__init__"} if first == "__init__" else {*METHODS} - {"__init__"})


def test_a_stub_that_somebody_kept_does_what_the_method_does() -> None:
    point = make_point(OURS, frozen=True)
    kept = point.__repr__
    assert kept(point(1)) == kept(point(1)) == repr(point(1))


def test_threads_may_meet_at_the_first_call() -> None:
    for _ in range(50):
        point = make_point(OURS, slots=True)
        together = threading.Barrier(4)

        def use(point: Callable[[int], Any] = point, together: threading.Barrier = together) -> str:
            together.wait()
            return repr(point(1))

        with ThreadPoolExecutor(4) as executor:
            used = [executor.submit(use) for _ in range(4)]
        assert len({one.result() for one in used}) == 1


def test_methods_that_a_class_defines_stay() -> None:
    @lazy_dataclass.dataclass(frozen=True)
    class Named:
        name: str

        def __repr__(self) -> str:
            return "named"

        def __eq__(self, other: object) -> bool:
            return True

        def __hash__(self) -> int:
            return 7

    assert (repr(Named("a")), Named("a") == Named("b"), hash(Named("a"))) == ("named", True, 7)


def test_fields_are_inherited() -> None:
    @lazy_dataclass.dataclass
    class Base:
        x: int

    @lazy_dataclass.dataclass
    class Derived(Base):
        y: int = 2

    assert repr(Derived(1)).endswith("Derived(x=1, y=2)")
    assert Derived(1) != Base(1)
    assert Base(1) == Base(1)


def test_a_class_that_is_not_decorated_again_uses_the_methods_of_its_base() -> None:
    class Special(make_point(OURS, slots=True)):  # type: ignore[misc]
        pass

    assert Special(1).length == 3
    assert Special(1) == Special(1)


@lazy_dataclass.dataclass(frozen=True, slots=True)
class Pickled:
    x: int


def test_frozen_slotted_instances_can_be_pickled_and_copied() -> None:
    assert copy.deepcopy(Pickled(5)) == Pickled(5)
    assert Pickled(5).__reduce_ex__(pickle.HIGHEST_PROTOCOL)


def test_an_option_that_is_not_there_is_refused() -> None:
    with pytest.raises(TypeError):
        OURS(order=True)
