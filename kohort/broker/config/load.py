"""Loads the broker's configuration from its four sources.

In order of precedence: ``--override name=value``, environment variables, the properties file, and
the defaults. All problems are collected and reported at once, each with the setting, where it was
given, and what is allowed.

Environment variables follow the rule of Kafka's own container image: ``KAFKA_`` and the name in
upper case with ``_`` for a dot (``__`` for an underscore, ``___`` for a dash), as in
``KAFKA_NUM_PARTITIONS``. Bitnami's prefix ``KAFKA_CFG_`` means the same. Our own
settings begin with ``KOHORT_``: ``KOHORT_METRICS_PORT`` is ``kohort.metrics.port``. The variables
that Kubernetes sets in every container for a Service called "kohort" or "kafka" are skipped.

Settings of any Kafka release are accepted. Any other name is an error if it is a misspelt setting;
otherwise it has no effect and causes a warning, as in Kafka.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from kohort.broker.config.broker import BrokerConfig, problems, warnings_about
from kohort.broker.config.ignored import misspelt, why_ignored
from kohort.broker.config.listeners import (
    PREFIX,
    canonical,
    of_listener,
    own_problems,
    own_setting,
    why_without_effect,
)
from kohort.broker.config.settings import ConfigType, InvalidValueError, Value, settings_of

_OVERRIDE: Final = "--override"
_BITNAMIS: Final = "KAFKA_CFG_"
_READ_BY_OTHERS: Final = 0o004

_OF_THE_PIPELINE = frozenset(
    f"KOHORT_{name}"
    for name in (
        "BOOTSTRAP_SERVER",
        "CATALOG",
        "FORMAT",
        "IVY_SETTINGS",
        "JARS",
        "KAFKA_CONFIG",
        "LAKE",
        "REGISTRY",
        "REGISTRY_USER",
        "SPARK_LOG_LEVEL",
        "SPARK_MASTER",
    )
)
"""Variables of `kohort pipeline`, which may be set in the environment of a broker too."""


# Compiled at first use: most starts need neither expression.
_OF_A_SERVICE: Final = (
    r"_(?:SERVICE_HOST|SERVICE_PORT(?:_[A-Z0-9_]+)?|PORT(?:_[0-9]+_(?:TCP|UDP|SCTP)"
    r"(?:_(?:PROTO|PORT|ADDR))?)?)$"
)
"""Matches the end of the names of variables that Kubernetes or Docker links set for Services."""
_SERVICE_URL: Final = r"(?:tcp|udp|sctp)://"


_OF_OTHERS: Final = frozenset(
    {
        "advertised.listener",
        "auto.create.topics.enabled",
        "broker.ids",
        "fetch.min.bytes",
        "listener",
        "logs.dir",
        "node.ids",
        "node.ip",
        "super.user",
    }
)
"""Settings of clients, applications and images whose names resemble those of a broker."""
_KOHORTS: Final = "kohort."
_PLAIN: Final = r"[\w.-]+"
_SHOWN_MAX: Final = 40
"""Errors hide longer names without a dot: they may be lines of a private key."""
_PEM_BEGIN: Final = "-----BEGIN "
_PEM_END: Final = "-----END"


class ConfigError(Exception):
    """The configuration is invalid; the text has a line for each problem."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("\n".join(problems))
        self.problems = tuple(problems)


class GivenValue(NamedTuple):
    """A configured value. Its text may be a secret and is left out of the repr."""

    name: str
    text: str
    origin: str
    """Source of the value, for messages: "server.properties:12", "--override", "environment X"."""

    def __repr__(self) -> str:
        return f"GivenValue({self.name!r}, {self.origin!r})"


class LoadedConfig(NamedTuple):
    config: BrokerConfig
    given: Mapping[str, GivenValue]
    """Settings from the file, the environment or --override, by name."""
    ignored: tuple[GivenValue, ...]
    """Kafka settings that were given, but have no effect here."""
    warnings: tuple[str, ...]
    own: Mapping[str, str]
    """Texts of listeners' settings by full name; some are secret."""
    given_own: Mapping[str, GivenValue]
    """Listeners' settings by full name, with their sources."""

    def __repr__(self) -> str:
        return f"LoadedConfig({self.config!r})"

    def of_listener(self, listener: str, mechanism: str = "") -> BrokerConfig:
        return of_listener(self.config, self.own, listener, mechanism)


def load(
    *,
    file: Path | None = None,
    overrides: Sequence[str] = (),
    environment: Mapping[str, str] | None = None,
) -> LoadedConfig:
    """Load the configuration from all sources. Raises ConfigError."""
    wrong: list[str] = []
    warnings: list[str] = []
    # Later entries override earlier ones, so the sources are in ascending order of precedence.
    sources = [
        *_from_file(file, wrong),
        *_from_environment(environment or {}),
        *_from_overrides(overrides, wrong),
    ]
    given: dict[str, GivenValue] = {}
    ignored: dict[str, GivenValue] = {}
    given_own: dict[str, GivenValue] = {}
    for value in sources:
        if value.name in settings_of(BrokerConfig):
            given[value.name] = value
        elif value.name.startswith(PREFIX):
            given_own[canonical(value.name)] = value
        elif why_ignored(value.name):
            ignored[value.name] = value
        else:
            _report_unknown(value, wrong, warnings)
    passwords = {name: value for name, value in (given | given_own).items() if _is_password(name)}
    warnings += (
        f"{_OVERRIDE} {name}: every user of this machine can see it in the list of processes; set"
        " it in the file or the environment"
        for name, value in passwords.items()
        if value.origin == _OVERRIDE
    )
    if file is not None and _is_world_readable(file):
        warnings += (
            f"{value.origin}: {name} can be read by every user of this machine, like the whole"
            " file: chmod 600"
            for name, value in passwords.items()
            if value.origin.startswith(f"{file}:")
        )
    config = _build(given, wrong)
    if config is not None:
        warnings += warnings_about(config)
        for name, value in tuple(given_own.items()):
            reason = why_without_effect(config, name)
            if reason is not None:
                warnings.append(f"{value.origin}: {reason}")
                del given_own[name]
    own = {name: value.text for name, value in given_own.items()}
    if config is not None and not wrong:
        origins = {name: value.origin for name, value in given_own.items()}
        wrong += own_problems(config, own, origins)
    if wrong or config is None:
        raise ConfigError(wrong)
    return LoadedConfig(config, given, tuple(ignored.values()), tuple(warnings), own, given_own)


def _build(given: Mapping[str, GivenValue], wrong: list[str]) -> BrokerConfig | None:
    known = settings_of(BrokerConfig)
    values: dict[str, Value] = {}
    for value in given.values():
        setting = known[value.name]
        try:
            values[setting.attribute] = setting.parse(value.text)
        except InvalidValueError as error:
            wrong.append(f"{value.origin}: {error}{setting.what_is_allowed()}")
    # A file for an older Kafka sets broker.id instead of node.id; in Kafka 4 both are the same id.
    if "node_id" not in values and isinstance(values.get("broker_id"), int):
        values["node_id"] = max(0, int(str(values["broker_id"])))
    if wrong:
        return None
    values.setdefault("broker_id", values.get("node_id", known["node.id"].default))
    config = BrokerConfig(**values)  # type: ignore[arg-type]
    wrong.extend(problems(config))
    return config


def _from_file(file: Path | None, wrong: list[str]) -> Iterator[GivenValue]:
    if file is None:
        return
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        wrong.append(f"{file}: cannot be read: {error}")
        return
    from kohort.formats.properties import parse_properties  # noqa: PLC0415 - only for a file.

    is_within_pem = False
    for entry in parse_properties(text):
        origin = f"{file}:{entry.line}"
        if is_within_pem:
            # May be a private key: do not report it as an unknown setting.
            is_within_pem = not entry.name.startswith(_PEM_END)
        elif _PEM_BEGIN in entry.value and _PEM_END not in entry.value:
            is_within_pem = True
            wrong.append(
                f"{origin}: {entry.name} has only the first line of its PEM; end each line but the"
                " last with a backslash, or write it in one line"
            )
        else:
            yield GivenValue(entry.name, entry.value, origin)


def _from_overrides(overrides: Sequence[str], wrong: list[str]) -> Iterator[GivenValue]:
    for override in overrides:
        name, equals, text = override.partition("=")
        if not equals or not name.strip():
            wrong.append(f"--override {override}: not of the form name=value")
        else:
            yield GivenValue(name.strip(), text, _OVERRIDE)


def _is_world_readable(file: Path) -> bool:
    try:
        return bool(file.stat().st_mode & _READ_BY_OTHERS)
    except OSError:
        return False


def _is_password(name: str) -> bool:
    """Whether the value is a credential; `super.users` is hidden too, but is not a credential."""
    own = own_setting(name)
    known = settings_of(BrokerConfig).get(name) if own is None else own.setting
    return known is not None and known.type is ConfigType.PASSWORD and name != "super.users"


def _from_environment(environment: Mapping[str, str]) -> Iterator[GivenValue]:
    # Later entries override earlier ones, so KAFKA_X overrides KAFKA_CFG_X.
    for variable in sorted(environment, key=lambda name: not name.startswith(_BITNAMIS)):
        name = _name_of(variable)
        if name is not None and not _is_of_a_service(variable, environment[variable]):
            yield GivenValue(name, environment[variable], f"environment variable {variable}")


def _name_of(variable: str) -> str | None:
    """Return the name of the setting that a variable sets; None for variables of other programs."""
    if variable in _OF_THE_PIPELINE:
        return None
    if variable.startswith("KAFKA_"):
        name = variable.removeprefix(_BITNAMIS).removeprefix("KAFKA_")
    elif variable.startswith("KOHORT_"):
        name = variable
    else:
        return None
    return name.lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")


def _is_of_a_service(variable: str, text: str) -> bool:
    """Whether Kubernetes has set this variable, for a Service whose name has one of our prefixes.

    A Service "kohort-metrics" sets KOHORT_METRICS_PORT to a URL, and one "kohort" KOHORT_PORT.
    """
    match = re.search(_OF_A_SERVICE, variable)
    if match is None:
        return False
    return match[0] != "_PORT" or re.match(_SERVICE_URL, text) is not None


def _report_unknown(given: GivenValue, wrong: list[str], warnings: list[str]) -> None:
    name = given.name
    meant = _meant_by(name)
    text = f"{given.origin}: unknown setting {_shown(name)}"
    hint = f"; did you mean {meant}?" if meant else ""
    if meant and name not in _OF_OTHERS:
        wrong.append(f"{text}{hint}")
    else:
        warnings.append(f"{text}: it has no effect{hint}")


def _meant_by(name: str) -> str | None:
    """Return the setting that the name is a misspelling of; None if it resembles none."""
    known = [
        name for name, setting in settings_of(BrokerConfig).items() if setting.declared.honoured
    ]
    if not name.startswith(_KOHORTS):
        return misspelt(name, known)
    # Compare without the prefix, because the limit of differences grows with the name's length.
    full_names = {full_name.removeprefix(_KOHORTS): full_name for full_name in known}
    meant = misspelt(name.removeprefix(_KOHORTS), full_names)
    return None if meant is None else full_names[meant]


def _shown(name: str) -> str:
    """Format a name for an error: shortened, escaped, and hidden if it may be from a key file."""
    if "." not in name and len(name) > _SHOWN_MAX:
        return f"with a name of {len(name)} characters and no dot"
    shown = name[: 2 * _SHOWN_MAX]
    return shown if re.fullmatch(_PLAIN, name, re.ASCII) else ascii(shown)
