"""How settings are declared: type, default, bounds and description in one place.

    group_initial_rebalance_delay_ms: Int = setting(3000, at_least=0, doc="Wait this long for ...")

The attribute is Kafka's name with underscores for dots, so a search finds either spelling. Parsing,
DescribeConfigs, the rejection of values out of range and docs/configuration.md are derived from the
declaration.

The classes of settings are frozen dataclasses. Their constructors do not validate, for tests and
trusted callers; text from outside goes through :meth:`Setting.parse`.
"""

import dataclasses
import inspect
import re
from collections.abc import Callable, Mapping
from enum import IntEnum
from functools import cache
from typing import (
    TYPE_CHECKING,
    Annotated,
    Any,
    ClassVar,
    Final,
    NamedTuple,
    TypeVar,
    cast,
    dataclass_transform,
    get_args,
    get_origin,
)

T = TypeVar("T")

Value = bool | int | float | str | tuple[str, ...] | None
"""Value of a setting; None if it is not set and has no default."""


class ConfigType(IntEnum):
    """Types of settings, with the numbers that DescribeConfigs v3 and later use."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


Boolean = Annotated[bool, ConfigType.BOOLEAN]
String = Annotated[str, ConfigType.STRING]
Int = Annotated[int, ConfigType.INT]
Short = Annotated[int, ConfigType.SHORT]
Long = Annotated[int, ConfigType.LONG]
Double = Annotated[float, ConfigType.DOUBLE]
List = Annotated[tuple[str, ...], ConfigType.LIST]
Password = Annotated[str, ConfigType.PASSWORD]
"""A secret: described without its value, never logged, and not in any repr."""

TEXT_LENGTH_MAX: Final = 8000
"""Longest value, in characters; in UTF-8 it fits into a string of any DescribeConfigs version."""
SECRET_LENGTH_MAX: Final = 65_536
"""Longest secret, for example a chain of certificates; DescribeConfigs never returns it."""
HIDDEN: Final = "[hidden]"
"""Shown in place of a secret."""
INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1

_DOUBLE: Final = r"[-+]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?[dDfF]?)"
"""A floating-point number as Java parses it, except hexadecimal ones."""
_INTEGER_BITS: Final = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


class InvalidValueError(ValueError):
    """An invalid value of a setting; the text is the same as Kafka's."""

    def __init__(self, name: str, value: object, reason: str) -> None:
        super().__init__(f"Invalid value {value} for configuration {name}: {reason}")
        self.name = name
        self.reason = reason


class Declaration(NamedTuple):
    """The arguments of a declaration; see `setting` for their meaning."""

    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    or_exactly: int | None = None
    check: Callable[[Any], object] | None = None
    falls_back_to: str | None = None
    dynamic: bool = False
    honoured: bool = True
    internal: bool = False
    rule: str = ""
    """For settings without effect: which changes at run time Kafka rejects; see `Rule`."""


class Setting(NamedTuple):
    name: str
    """Kafka's name, with dots."""
    attribute: str
    type: ConfigType
    optional: bool
    """Whether None is a valid value."""
    default: Value
    section: str
    """Heading in the documentation."""
    declared: Declaration

    def parse(self, text: str) -> Value:
        """Parse and validate a text; raises InvalidValueError."""
        text = text.strip()
        limit = SECRET_LENGTH_MAX if self.type is ConfigType.PASSWORD else TEXT_LENGTH_MAX
        if len(text) > limit:
            beginning = f"{text[:20]}... ({len(text)} characters)"
            raise self._invalid(beginning, f"Value must have at most {limit} characters")
        value = self._convert(text)
        self._check_bounds(value)
        if self.declared.check is not None:
            try:
                self.declared.check(value)
            except ValueError as error:
                shown = f"[{', '.join(value)}]" if isinstance(value, tuple) else value
                raise self._invalid(shown, str(error)) from None
        return value

    def format(self, value: Value) -> str | None:
        """Format a value as Kafka's tools do; None stays None."""
        if value is None:
            return None
        if isinstance(value, bool):
            return "true" if value else "false"
        if isinstance(value, tuple):
            return ",".join(value)
        if isinstance(value, float):
            # Java writes 1.0E10 where Python writes 1e+10.
            mantissa, _, exponent = repr(value).partition("e")
            if not exponent:
                return mantissa
            return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"
        return str(value)

    def allowed(self) -> str:
        """Describe the valid values, for error messages and the documentation."""
        declared = self.declared
        if declared.one_of:
            kind = "a comma-separated list of" if self.type is ConfigType.LIST else "one of"
            return f"{kind} {', '.join(declared.one_of)}"
        phrase = {
            ConfigType.BOOLEAN: "true or false",
            ConfigType.DOUBLE: "a number",
            ConfigType.LIST: "a comma-separated list",
        }.get(self.type, "a whole number" if self.type in _INTEGER_BITS else "text")
        if declared.at_least is not None:
            phrase += f" of at least {declared.at_least}"
        if declared.at_most is not None:
            phrase += (
                f"{' and' if declared.at_least is not None else ' of'} at most {declared.at_most}"
            )
        if declared.or_exactly is not None:
            phrase += f", or {declared.or_exactly}"
        return phrase

    def what_is_allowed(self) -> str:
        """Return `allowed()` in brackets, to append to an error.

        Empty for settings with a ``check``, whose errors already contain the reason.
        """
        return "" if self.declared.check else f" (allowed: {self.allowed()})"

    def _convert(self, text: str) -> Value:
        match self.type:
            case ConfigType.BOOLEAN:
                if text.lower() not in {"true", "false"}:
                    raise self._invalid(text, "Expected value to be either true or false")
                return text.lower() == "true"
            case ConfigType.SHORT | ConfigType.INT | ConfigType.LONG:
                return self._convert_integer(text)
            case ConfigType.DOUBLE:
                if re.fullmatch(_DOUBLE, text) is None:
                    raise self._not_a_number(text)
                return float(text.rstrip("dDfF"))
            case ConfigType.LIST:
                # Repeated items are dropped as Kafka drops them, the first one stays.
                items = tuple(dict.fromkeys(item.strip() for item in text.split(",")))
                if "" in items and text:
                    raise self._invalid(text, "Values must not be empty")
                return items if text else ()
            case _:
                return text

    def _convert_integer(self, text: str) -> int:
        # int() alone would also accept "1_000". Java accepts digits of all alphabets.
        digits = text[1:] if text[:1] in {"-", "+"} else text
        if not (digits.isdecimal() and len(digits) < 20):
            raise self._not_a_number(text)
        number = int(text)
        limit = 1 << (_INTEGER_BITS[self.type] - 1)
        if not -limit <= number < limit:
            raise self._not_a_number(text)
        return number

    def _check_bounds(self, value: Value) -> None:
        declared = self.declared
        if declared.one_of:
            for item in value if isinstance(value, tuple) else (value,):
                if item not in declared.one_of:
                    raise self._invalid(
                        item, f"String must be one of: {', '.join(declared.one_of)}"
                    )
        if not isinstance(value, int | float) or isinstance(value, bool):
            return
        if value == declared.or_exactly:
            return
        low, high = declared.at_least, declared.at_most
        if declared.or_exactly is not None and not (low or value) <= value <= (high or value):
            reason = f"Value must be between {low} and {high} or equal to {declared.or_exactly}"
            raise self._invalid(value, reason)
        # Not `value < low`, which is false for NaN.
        if low is not None and not value >= low:
            raise self._invalid(value, f"Value must be at least {low}")
        if high is not None and not value <= high:
            raise self._invalid(value, f"Value must be no more than {high}")

    def _not_a_number(self, text: str) -> InvalidValueError:
        return self._invalid(text, f"Not a number of type {self.type.name}")

    def _invalid(self, value: object, reason: str) -> InvalidValueError:
        shown = HIDDEN if self.type is ConfigType.PASSWORD else value
        return InvalidValueError(self.name, shown, reason)


def setting(
    default: T,
    *,
    doc: str,
    at_least: float | None = None,
    at_most: float | None = None,
    one_of: tuple[str, ...] = (),
    or_exactly: int | None = None,
    check: Callable[[Any], object] | None = None,
    falls_back_to: str | None = None,
    dynamic: bool = False,
    honoured: bool = True,
    internal: bool = False,
) -> T:
    """Declare a setting of a `Settings` class.

    ``or_exactly`` is one value allowed outside the bounds. ``check`` raises ValueError with what is
    wrong with a value. ``falls_back_to`` names the broker setting that gives the value when this
    one is not set; units in the last part of the names (.ms, .minutes, .hours) are converted. A
    ``dynamic`` setting can be changed while the broker runs (KIP-226). A setting that is not
    ``honoured`` is accepted, stored and described, but has no effect. An ``internal`` one is for
    tests and is not listed.
    """
    declaration = Declaration(
        doc=doc,
        at_least=at_least,
        at_most=at_most,
        one_of=one_of,
        or_exactly=or_exactly,
        check=check,
        falls_back_to=falls_back_to,
        dynamic=dynamic,
        honoured=honoured,
        internal=internal,
    )
    field: Any = dataclasses.field(default=default, metadata={"declaration": declaration})
    return cast(T, field)


_without_generated_methods: Final = dataclasses.dataclass(init=False, repr=False, eq=False)


@dataclass_transform(frozen_default=True, kw_only_default=True)
class Settings:
    """Base of the classes whose attributes are settings; subclasses become frozen dataclasses.

    The methods that `dataclass` would generate are replaced by ones that iterate over the fields:
    compiling an __init__ of a hundred arguments would take a tenth of the broker's start.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls) -> None:
        _without_generated_methods(cls)

    def __init__(self, **values: Value) -> None:
        unknown = values.keys() - self.__dataclass_fields__.keys()
        if unknown:
            raise TypeError(f"{type(self).__name__} has no setting {', '.join(sorted(unknown))}")
        defaults = {name: field.default for name, field in self.__dataclass_fields__.items()}
        self.__dict__.update(defaults | values)

    def __setattr__(self, name: str, _value: object) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot assign to setting {name!r}")

    def __delattr__(self, name: str) -> None:
        raise dataclasses.FrozenInstanceError(f"cannot delete setting {name!r}")

    def _values(self) -> tuple[Value, ...]:
        return tuple(getattr(self, name) for name in self.__dataclass_fields__)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Settings) or type(other) is not type(self):
            return NotImplemented
        return self._values() == other._values()

    def __hash__(self) -> int:
        return hash(self._values())

    def __repr__(self) -> str:
        changed = (
            f"{name}={HIDDEN if _type_of(field.type)[0] is ConfigType.PASSWORD else repr(value)}"
            for (name, field), value in zip(
                self.__dataclass_fields__.items(), self._values(), strict=True
            )
            if value != field.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


# The base must be a dataclass like its subclasses.
_without_generated_methods(Settings)


@cache
def settings_of(cls: type[Settings]) -> Mapping[str, Setting]:
    """Return the settings of a class by Kafka's name, in order of declaration."""
    sections = {
        attribute: (owner.__doc__ or owner.__name__).partition("\n")[0].rstrip(".")
        for owner in reversed(cls.__mro__)
        for attribute in inspect.get_annotations(owner)
    }
    settings = {}
    for field in dataclasses.fields(cls):
        kind, optional = _type_of(field.type)
        name = field.name.replace("_", ".")
        settings[name] = Setting(
            name=name,
            attribute=field.name,
            type=kind,
            optional=optional,
            default=cast(Value, field.default),
            section=sections[field.name],
            declared=field.metadata["declaration"],
        )
    return settings


def _type_of(annotation: object) -> tuple[ConfigType, bool]:
    if get_origin(annotation) is Annotated:
        return get_args(annotation)[1], False
    inner = next(arg for arg in get_args(annotation) if arg is not type(None))
    return get_args(inner)[1], True


_UNIT_MS: Final = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}


def unit_ms(name: str) -> int:
    """Return the milliseconds of the unit at the end of a setting's name; 1 without a unit."""
    return _UNIT_MS.get(name.rpartition(".")[2], 1)
