"""`dataclass`, with methods that are compiled when they are first called.

The standard decorator compiles half a dozen methods for every class, 0.6 ms each time; for all of
ours that is a fifth of the broker's start. Here a class begins with stubs, for 0.04 ms. The first
instance has `__init__` written, for 0.1 ms, and most classes never need more. The first call of
another method has the standard decorator make the others. What was made takes the place of its
stub, so nothing is slower afterwards.

To be used like the original, of which it has those options that are used here; type checkers see
the original. There is no `InitVar`.
"""

import dataclasses
from collections.abc import Callable
from dataclasses import MISSING
from typing import TYPE_CHECKING, Any, Final, NoReturn

__all__ = ["dataclass"]

_NOT_GIVEN: Final = object()
"""The argument of a field that has a factory for its default, if the caller gave none."""


class _Stubs:
    """The methods of one class that are not compiled yet."""

    def __init__(self, cls: type, names: list[str], *, frozen: bool, eq: bool) -> None:
        self._cls = cls
        self._names = names
        self._frozen = frozen
        self._eq = eq
        for name in names:
            setattr(cls, name, self._stub(name))

    def _stub(self, name: str) -> Callable[..., Any]:
        def stub(instance: object, *args: object, **kwargs: object) -> Any:
            # Somebody may have kept the stub.
            if vars(self._cls)[name] is stub:
                self._replace(name)
            return getattr(self._cls, name)(instance, *args, **kwargs)

        stub.__name__ = name
        stub.__qualname__ = f"{self._cls.__qualname__}.{name}"
        return stub

    def _replace(self, called: str) -> None:
        """Put the real methods in place. Several threads may do so, each with the same result."""
        if called == "__init__":
            setattr(self._cls, called, _written_init(self._cls, frozen=self._frozen))
            return
        twin = self._twin()
        for name in self._names:
            if name != "__init__":
                setattr(self._cls, name, twin.__dict__[name])

    def _twin(self) -> type:
        """A class with the same fields and all the methods but `__init__`, and no more."""
        cls = self._cls
        annotations: dict[str, object] = {}
        namespace: dict[str, object] = {
            "__module__": cls.__module__,
            "__qualname__": cls.__qualname__,
            "__doc__": cls.__doc__,
            "__annotations__": annotations,
        }
        for field in dataclasses.fields(cls):
            annotations[field.name] = field.type
            namespace[field.name] = dataclasses.field(
                repr=field.repr, hash=field.hash, compare=field.compare
            )
        make = dataclasses.dataclass(init=False, frozen=self._frozen, eq=self._eq)
        twin: type = make(type(cls.__name__, (), namespace))
        return twin


def _written_init(cls: type, *, frozen: bool) -> Callable[..., None]:
    """As the standard decorator writes it, which makes a frozen class's other methods as well."""
    names: dict[str, Any] = {
        "__name__": cls.__module__,
        "_set_attribute": object.__setattr__,
        "_NOT_GIVEN": _NOT_GIVEN,
    }
    positional, keyword, body = ["self"], list[str](), list[str]()
    for field in dataclasses.fields(cls):
        name, default, value = field.name, "", field.name
        if field.default is not MISSING:
            default = f"_default_{name}"
            names[default] = field.default
            value = name if field.init else default
        elif field.default_factory is not MISSING:
            default = "_NOT_GIVEN"
            names[f"_make_{name}"] = field.default_factory
            made = f"_make_{name}()"
            value = f"{made} if {name} is _NOT_GIVEN else {name}" if field.init else made
        elif not field.init:
            continue  # Left to __post_init__.
        if field.init:
            parameters = keyword if field.kw_only else positional
            parameters.append(f"{name}={default}" if default else name)
        body.append(
            f"_set_attribute(self, {name!r}, {value})" if frozen else f"self.{name} = {value}"
        )
    if hasattr(cls, "__post_init__"):
        body.append("self.__post_init__()")
    if keyword:
        positional.append("*")
    lines = "".join(f" {line}\n" for line in body or ["pass"])
    exec(f"def __init__({', '.join(positional + keyword)}):\n{lines}", names)  # noqa: S102
    init: Callable[..., None] = names["__init__"]
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    return init


def _lazy_dataclass(
    cls: type | None = None,
    /,
    *,
    frozen: bool = False,
    slots: bool = False,
    eq: bool = True,
    kw_only: bool = False,
) -> type | Callable[[type], type]:
    def decorate(cls: type) -> type:
        return _decorate(cls, frozen=frozen, slots=slots, eq=eq, kw_only=kw_only)

    return decorate if cls is None else decorate(cls)


def _decorate(cls: type, *, frozen: bool, slots: bool, eq: bool, kw_only: bool) -> type:
    own = dict(cls.__dict__)
    if cls.__doc__ is None:
        # The original would spell out the signature, which costs as much as all the rest.
        cls.__doc__ = cls.__name__
    bare = dataclasses.dataclass(init=False, repr=False, eq=False, slots=slots, kw_only=kw_only)
    made: type = bare(cls)
    names = [name for name in ("__init__", "__repr__") if name not in own]
    at_once: dict[str, object] = {}
    if eq and "__eq__" not in own:
        names.append("__eq__")
        if frozen and "__hash__" not in own:
            names.append("__hash__")
        elif "__hash__" not in own:
            at_once["__hash__"] = None
    if frozen:
        at_once |= {"__setattr__": _refuse_to_set, "__delattr__": _refuse_to_delete}
    if frozen and slots:
        at_once |= {"__getstate__": _get_state, "__setstate__": _set_state}
    for name, method in at_once.items():
        setattr(made, name, method)
    _Stubs(made, names, frozen=frozen, eq=eq)
    return made


def _refuse_to_set(_: object, name: str, value: object) -> NoReturn:  # noqa: ARG001
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(_: object, name: str) -> NoReturn:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _get_state(instance: Any) -> list[object]:
    return [getattr(instance, field.name) for field in dataclasses.fields(instance)]


def _set_state(instance: Any, state: list[object]) -> None:
    for field, value in zip(dataclasses.fields(instance), state, strict=True):
        object.__setattr__(instance, field.name, value)


if TYPE_CHECKING:
    from dataclasses import dataclass
else:
    dataclass = _lazy_dataclass
