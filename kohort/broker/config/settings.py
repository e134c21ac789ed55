"""How settings are declared: type, default, bounds and description in settings.txt, and the type of
the attribute in a class.

    group_initial_rebalance_delay_ms: int

The attribute is Kafka's name with underscores for dots. Parsing, DescribeConfigs, the rejection of
values out of range and docs/configuration.md are derived from the declarations.

The classes of settings are frozen dataclasses. Their constructors do not validate, for tests and
trusted callers; text from outside goes through :meth:`Setting.parse`.
"""

import dataclasses
import re
from collections.abc import Callable, Collection, Mapping
from enum import IntEnum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Final, NamedTuple, TypeAlias

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
    """A secret: described without its value, never logged, and not in any repr."""


TEXT_LENGTH_MAX: Final = 8000
"""Longest value, in characters; in UTF-8 it fits into a string of any DescribeConfigs version."""
SECRET_LENGTH_MAX: Final = 65_536
"""Longest secret, for example a chain of certificates; DescribeConfigs never returns it."""
HIDDEN: Final = "[hidden]"
"""Shown in place of a secret."""
_FILE: Final = Path(__file__).with_name("settings.txt")
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


Check: TypeAlias = Callable[[Any], object]
"""Raises ValueError with what is wrong with a value."""


class Declaration(NamedTuple):
    doc: str
    at_least: int | None = None
    at_most: int | None = None
    one_of: tuple[str, ...] = ()
    or_exactly: int | None = None
    """One value allowed outside the bounds."""
    check: Check | None = None
    falls_back_to: str | None = None
    """The broker setting that gives the value if this one is not set."""
    dynamic: bool = False
    """Whether it can be changed while the broker runs."""
    honoured: bool = True
    """Whether it has an effect; otherwise it is accepted, stored and described all the same."""
    internal: bool = False
    """Whether it is for tests and not listed."""
    rule: str = ""
    """Kafka's condition for a change at run time of a setting without effect here; see `Rule`."""


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
        """Format a value as Kafka's tools do; None for None."""
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
        """A phrase about valid values, for error messages and the documentation."""
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
        """`allowed` in brackets, to append to an error.

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
        # In this form it also rejects NaN.
        if low is not None and not value >= low:
            raise self._invalid(value, f"Value must be at least {low}")
        if high is not None and not value <= high:
            raise self._invalid(value, f"Value must be no more than {high}")

    def _not_a_number(self, text: str) -> InvalidValueError:
        return self._invalid(text, f"Not a number of type {self.type.name}")

    def _invalid(self, value: object, reason: str) -> InvalidValueError:
        shown = HIDDEN if self.type is ConfigType.PASSWORD else value
        return InvalidValueError(self.name, shown, reason)


def parse_declaration(
    line: str, section: str, doc: str, *, honoured: bool = True, rules: Collection[str] = ()
) -> Setting:
    """Parse ``name TYPE default`` and what follows; see settings.txt. `rules` are further words."""
    name, kind, text, *words = line.split()
    default = _default(kind, text)
    bounds = {word[:2]: int(word[2:]) for word in words if word[:2] in {">=", "<="}}
    options = dict(word.split(":", 1) for word in words if ":" in word)
    return Setting(
        name=name,
        attribute=name.replace(".", "_"),
        type=ConfigType[kind],
        optional=default is None,
        default=default,
        section=section,
        declared=Declaration(
            doc=doc,
            at_least=bounds.get(">="),
            at_most=bounds.get("<="),
            one_of=tuple(options["one-of"].split(",")) if "one-of" in options else (),
            or_exactly=int(options["or"]) if "or" in options else None,
            falls_back_to=options.get("else"),
            dynamic="dynamic" in words,
            honoured=honoured and "unused" not in words,
            internal="unlisted" in words,
            rule=next((word for word in words if word in rules), ""),
        ),
    )


def _default(kind: str, text: str) -> Value:
    """Parse a default. `Setting.parse` would need the setting first."""
    if text == "null":
        return None
    text = "" if text == '""' else text
    match kind:
        case "BOOLEAN":
            return text == "true"
        case "INT" | "LONG" | "SHORT":
            return int(text)
        case "DOUBLE":
            return float(text)
        case "LIST":
            return tuple(text.split(",")) if text else ()
        case _:
            return text


@cache
def _sections() -> Mapping[str, list[Setting]]:
    """Return the settings of settings.txt, by section."""
    sections: dict[str, list[Setting]] = {}
    of_broker: dict[str, Setting] = {}
    section = ""
    # Indented lines continue a declaration.
    for line in _FILE.read_text(encoding="utf-8").replace("\n  ", " ").splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            declaration, _, doc = line.partition(": ")
            name, _, source = declaration.partition(" = ")
            if source:
                known = of_broker[source]
                declared = known.declared._replace(
                    doc=doc, falls_back_to=source, dynamic=False, internal=False
                )
                known = known._replace(
                    name=name,
                    attribute=name.replace(".", "_"),
                    section=section,
                    declared=declared,
                )
            else:
                known = parse_declaration(declaration, section, doc)
                # A topic config may have the name of a setting of the broker.
                of_broker.setdefault(known.name, known)
            sections.setdefault(section, []).append(known)
    return sections


_PYTHON_TYPES: Final[Mapping[ConfigType, Any]] = {
    ConfigType.BOOLEAN: bool,
    ConfigType.INT: int,
    ConfigType.LONG: int,
    ConfigType.DOUBLE: float,
    ConfigType.LIST: tuple[str, ...],
}

NO_CHECKS: Final[Mapping[str, Check]] = MappingProxyType({})


def _heading(cls: type) -> str:
    return (cls.__doc__ or "").partition("\n")[0].rstrip(".")


_without_generated_methods: Final = dataclasses.dataclass(init=False, repr=False, eq=False)


class Settings:
    """Base of the classes whose attributes are settings; subclasses become frozen dataclasses.

    The first line of a subclass's docstring is the section of settings.txt that declares its
    attributes.

    The methods that `dataclass` would generate are replaced by ones that iterate over the fields:
    compiling an __init__ of a hundred arguments would take a tenth of the broker's start.
    """

    if TYPE_CHECKING:
        __dataclass_fields__: ClassVar[dict[str, dataclasses.Field[Any]]]

    def __init_subclass__(cls, checks: Mapping[str, Check] = NO_CHECKS) -> None:
        """`checks` has the checks of settings by Kafka's name, besides those of their bounds."""
        annotations = dict(cls.__annotations__)
        for known in _sections().get(_heading(cls), []) if annotations else ():
            python_type = _PYTHON_TYPES.get(known.type, str)
            expected = python_type | None if known.optional else python_type
            assert annotations.pop(known.attribute) == expected, f"type of {known.name}"
            check, checked = checks.get(known.name), known
            if check is not None:
                checked = known._replace(declared=known.declared._replace(check=check))
            field: Any = dataclasses.field(default=known.default, metadata={"setting": checked})
            setattr(cls, known.attribute, field)
        assert not annotations, f"not in settings.txt: {', '.join(annotations)}"
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
        settings = (field.metadata["setting"] for field in self.__dataclass_fields__.values())
        changed = (
            f"{known.attribute}={HIDDEN if known.type is ConfigType.PASSWORD else repr(value)}"
            for known, value in zip(settings, self._values(), strict=True)
            if value != known.default
        )
        return f"{type(self).__name__}({', '.join(changed)})"


# The base must be a dataclass like its subclasses.
_without_generated_methods(Settings)


@cache
def settings_of(cls: type[Settings]) -> Mapping[str, Setting]:
    """Return the settings of a class by Kafka's name, in order of declaration."""
    settings = (field.metadata["setting"] for field in dataclasses.fields(cls))
    return {setting.name: setting for setting in settings}


_UNIT_MS: Final = {"ms": 1, "seconds": 1000, "minutes": 60_000, "hours": 3_600_000}


def unit_ms(name: str) -> int:
    """Return the milliseconds of the unit at the end of a setting's name; 1 without a unit."""
    return _UNIT_MS.get(name.rpartition(".")[2], 1)
