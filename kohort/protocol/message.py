"""Declaring messages: one class per message, for all of its versions.

::

    @request(key=12, versions="0-4", flexible="4+")
    class HeartbeatRequest:
        group_id: String
        generation_id: Int32
        member_id: String
        group_instance_id: String | None = field(default=None, since=3)

A declared class is slotted and mutable, takes keyword arguments, compares by value, and carries its
declaration as ``schema``. Its wire format in a version is given by
:func:`kohort.protocol.layout.layout`; :func:`kohort.protocol.codec.codec` gives a fast reader and
writer of it.
"""

import inspect
from collections.abc import Callable
from typing import Any, ClassVar, Final, Protocol, TypeVar, dataclass_transform

from kohort.protocol.schema import (
    EVERY_VERSION,
    FOREVER,
    MISSING,
    NO_VERSION,
    FieldOptions,
    MessageSchema,
    VersionRange,
    parse_field,
)

T = TypeVar("T")

REQUESTS: Final[dict[int, type]] = {}
"""Request classes by api key, for the message modules imported so far."""
RESPONSES: Final[dict[int, type]] = {}
"""Response classes by api key, for the message modules imported so far."""


def field(
    *,
    default: Any = MISSING,
    since: int = 0,
    until: int = FOREVER,
    nullable_since: int | None = None,
    tag: int | None = None,
    tag_since: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Declare options of a field beyond its annotation.

    Args:
        default: value when the caller gives none and when a version lacks the field. A list is
            copied; a struct class is called without arguments.
        since, until: first and last message version with the field.
        nullable_since: first version in which ``| None`` holds, if later than ``since``.
        tag: the field's number in the tag buffer; ``tag_since`` if it was an ordinary field before.
        ignorable: a version without the field drops the value; otherwise encoding a value that is
            not the default into such a version is an EncodeError.
    """
    return FieldOptions(
        default=default,
        versions=VersionRange(since, until),
        nullable=None if nullable_since is None else VersionRange(nullable_since, FOREVER),
        tag=tag,
        tagged=VersionRange(since if tag_since is None else tag_since, FOREVER),
        ignorable=ignorable,
    )


_PLAIN: Final[FieldOptions] = field()


class Message(Protocol):
    """The type of any declared class, for type checkers only. They do not see that the decorators
    below add the base `Struct`, but treat the class as a dataclass, which has the field below.
    """

    __dataclass_fields__: ClassVar[dict[str, Any]]


class Struct:
    """Base of every declared class: value semantics over the declared fields."""

    __slots__: tuple[str, ...] = ()
    schema: ClassVar[MessageSchema]

    def __init__(self, **values: Any) -> None:
        # Compiled on the first call: most classes are imported long before they are used, and
        # start-up should not pay for them.
        _install_init(type(self))
        type(self).__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if other.__class__ is not self.__class__:
            return NotImplemented
        return all(getattr(self, n) == getattr(other, n) for n in self.__slots__)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__slots__)
        return f"{type(self).__name__}({values})"


def schema_of(message: type) -> MessageSchema:
    """Return the declaration of a message, struct or record class."""
    schema: MessageSchema = message.schema  # type: ignore[attr-defined]
    return schema


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def struct(cls: type[T]) -> type[T]:
    """Declare a structure that messages contain; it takes its versions from the message."""
    return _declare(cls, None, EVERY_VERSION, NO_VERSION, is_request=False)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def request(*, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Declare the request of api ``key``; ``flexible`` is a range such as "9+", or "none"."""
    return _declaring(versions, flexible, key, REQUESTS)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def response(*, key: int, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    return _declaring(versions, flexible, key, RESPONSES)


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
def record(*, versions: str, flexible: str) -> Callable[[type[T]], type[T]]:
    """Declare a data structure with versions of its own: a record's key or value."""
    return _declaring(versions, flexible, None, {})


def _declaring(
    versions: str, flexible: str, key: int | None, declared: dict[Any, type]
) -> Callable[[type[T]], type[T]]:
    """Return a decorator that adds the class to `declared`."""
    low_high, compact = VersionRange.parse(versions), VersionRange.parse(flexible)

    def decorate(cls: type[T]) -> type[T]:
        made = declared[key] = _declare(
            cls, key, low_high, compact, is_request=declared is REQUESTS
        )
        return made

    return decorate


def _declare(
    cls: type[T],
    key: int | None,
    versions: VersionRange,
    flexible: VersionRange,
    *,
    is_request: bool,
) -> type[T]:
    """Rebuild ``cls`` as a slotted :class:`Struct` with its schema."""
    fields = tuple(
        parse_field(name, annotation, cls.__dict__.get(name, _PLAIN))
        for name, annotation in inspect.get_annotations(cls).items()
    )
    names = {declared.name for declared in fields}
    dropped = names | {"__dict__", "__weakref__"}
    namespace = {name: value for name, value in cls.__dict__.items() if name not in dropped}
    namespace["__slots__"] = tuple(declared.name for declared in fields)
    rebuilt: type[T] = type(cls.__name__, (Struct,), namespace)
    rebuilt.schema = MessageSchema(  # type: ignore[attr-defined]
        cls.__name__, rebuilt, fields, key, versions, flexible, is_request
    )
    return rebuilt


def _install_init(cls: type) -> None:
    """Write the keyword constructor that the declaration describes."""
    names: dict[str, Any] = {"_unset": MISSING}
    parameters: list[str] = []
    body: list[str] = []
    for declared in schema_of(cls).fields:
        name = declared.name
        if not declared.has_default:
            parameters.append(name)
            body.append(f"    self.{name} = {name}")
            continue
        default = declared.make_default()
        if default == []:
            parameters.append(f"{name}=_unset")
            body.append(f"    self.{name} = [] if {name} is _unset else {name}")
        elif isinstance(default, (list, Struct)):
            is_struct = isinstance(default, Struct)
            names[f"_make_{name}"] = type(default) if is_struct else declared.make_default
            parameters.append(f"{name}=_unset")
            body.append(f"    self.{name} = _make_{name}() if {name} is _unset else {name}")
        else:
            names[f"_default_{name}"] = default
            parameters.append(f"{name}=_default_{name}")
            body.append(f"    self.{name} = {name}")
    signature = f"self, *, {', '.join(parameters)}" if parameters else "self"
    source = f"def __init__({signature}):\n" + ("\n".join(body) or "    pass")
    exec(source, names)  # noqa: S102 - written from our own declarations
    cls.__init__ = names["__init__"]  # type: ignore[misc]
